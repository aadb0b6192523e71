// Package kubernetes tests the manifests of deploy/kubernetes against the types of the API.
package kubernetes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const folder = "../../deploy/kubernetes"

// kustomization is what is used of the file of that name.
type kustomization struct {
	Namespace          string   `json:"namespace"`
	Resources          []string `json:"resources"`
	ConfigMapGenerator []struct {
		Name  string   `json:"name"`
		Files []string `json:"files"`
	} `json:"configMapGenerator"`
}

// app is a StatefulSet and what belongs to it.
type app struct {
	set     appsv1.StatefulSet
	service corev1.Service
	budget  policyv1.PodDisruptionBudget
}

func (a *app) pod() *corev1.PodSpec { return &a.set.Spec.Template.Spec }

// decode decodes a manifest. A field that the type lacks, or that is there twice, is an error.
func decode(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) }

// load decodes all manifests.
func load(t *testing.T) (k kustomization, apps map[string]*app) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	require.NoError(t, err)
	require.NoError(t, decode(b, &k))
	apps = map[string]*app{"etcd": {}, "rdmacached": {}}
	for _, name := range k.Resources {
		b, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err)
		for text := range strings.SplitSeq(string(b), "\n---\n") {
			var object struct {
				metav1.TypeMeta   `json:",inline"`
				metav1.ObjectMeta `json:"metadata"`
			}
			require.NoError(t, yaml.Unmarshal([]byte(text), &object), name)
			a, into := apps[object.Name], any(nil)
			require.NotNil(t, a, "%s: %s", name, object.Name)
			switch object.APIVersion + " " + object.Kind {
			case "v1 Namespace":
				require.Equal(t, k.Namespace, object.Name)
				into = &corev1.Namespace{}
			case "v1 Service":
				into = &a.service
			case "apps/v1 StatefulSet":
				into = &a.set
			case "policy/v1 PodDisruptionBudget":
				into = &a.budget
			}
			require.NotNil(t, into, "%s: %s %s", name, object.APIVersion, object.Kind)
			require.NoError(t, decode([]byte(text), into), "%s: %s %s", name, object.Kind, object.Name)
		}
	}
	return k, apps
}

// A file that kustomization.yaml does not name is not applied.
func TestFiles(t *testing.T) {
	k, _ := load(t)
	require.Len(t, k.ConfigMapGenerator, 1)
	named := append([]string{"kustomization.yaml"}, k.Resources...)
	named = append(named, k.ConfigMapGenerator[0].Files...)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var there []string
	for _, e := range entries {
		there = append(there, e.Name())
	}
	require.ElementsMatch(t, there, named)
}

// A mistake in a name is found.
func TestDecodeIsStrict(t *testing.T) {
	require.NoError(t, decode([]byte("spec: {replicas: 3}"), &appsv1.StatefulSet{}))
	for _, text := range []string{"spec: {replica: 3}", "spec: {replicas: x}", "spec: {replicas: 3, replicas: 4}"} {
		require.Error(t, decode([]byte(text), &appsv1.StatefulSet{}), text)
	}
}

// Each of three pods has a host of its own, selectors select them, one at a time may be evicted, and readiness is
// asked for at a port that there is.
func TestStatefulSets(t *testing.T) {
	_, apps := load(t)
	for name, a := range apps {
		labels := a.set.Spec.Template.Labels
		require.Equal(t, name, a.set.Name)
		require.Equal(t, name, a.set.Spec.ServiceName)
		require.Equal(t, int32(3), *a.set.Spec.Replicas)
		require.Equal(t, appsv1.ParallelPodManagement, a.set.Spec.PodManagementPolicy)
		require.NotEmpty(t, labels)
		require.Equal(t, labels, a.set.Spec.Selector.MatchLabels)
		require.Equal(t, labels, a.service.Spec.Selector)
		require.Equal(t, corev1.ClusterIPNone, a.service.Spec.ClusterIP)
		require.Equal(t, labels, a.budget.Spec.Selector.MatchLabels)
		require.Equal(t, 1, a.budget.Spec.MaxUnavailable.IntValue())
		spread := a.pod().TopologySpreadConstraints[0]
		require.Equal(t, corev1.LabelHostname, spread.TopologyKey)
		require.Equal(t, corev1.DoNotSchedule, spread.WhenUnsatisfiable)
		require.Equal(t, labels, spread.LabelSelector.MatchLabels)

		require.Len(t, a.pod().Containers, 1)
		c := a.pod().Containers[0]
		require.Nil(t, c.LivenessProbe, "a restart loses more than a server that hangs")
		ports := make(map[string]int32)
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
		require.Contains(t, ports, c.ReadinessProbe.HTTPGet.Port.StrVal)
		for _, p := range a.service.Spec.Ports {
			require.Equal(t, p.Port, ports[p.Name], p.Name)
		}
		volumes := make(map[string]bool)
		for _, v := range a.pod().Volumes {
			volumes[v.Name] = true
		}
		for _, v := range a.set.Spec.VolumeClaimTemplates {
			volumes[v.Name] = true
		}
		for _, m := range c.VolumeMounts {
			require.True(t, volumes[m.Name], m.Name)
		}
	}
	require.Equal(t, "/health", apps["etcd"].pod().Containers[0].ReadinessProbe.HTTPGet.Path)
	require.True(t, apps["etcd"].service.Spec.PublishNotReadyAddresses)
}

// The servers have a device, lock memory, have the time to hand over their records, and name the members of etcd.
func TestServers(t *testing.T) {
	k, apps := load(t)
	a := apps["rdmacached"]
	c := a.pod().Containers[0]
	require.True(t, a.pod().HostNetwork)
	require.Equal(t, corev1.DNSClusterFirstWithHostNet, a.pod().DNSPolicy)
	require.Equal(t, "/healthz", c.ReadinessProbe.HTTPGet.Path)
	const device = "rdma/hca_shared_devices_a"
	require.Equal(t, int64(1), c.Resources.Limits.Name(device, "").Value())
	require.Equal(t, int64(1), c.Resources.Requests.Name(device, "").Value(), "extended resources have no other request than their limit")
	require.Contains(t, c.SecurityContext.Capabilities.Add, corev1.Capability("IPC_LOCK"))
	require.Zero(t, *c.SecurityContext.RunAsUser, "the capability is in effect for root")

	b, err := os.ReadFile(filepath.Join(folder, k.ConfigMapGenerator[0].Files[0]))
	require.NoError(t, err)
	var config struct {
		Key     string
		Listen  string
		Cluster struct {
			Etcd  []string
			Drain string
		}
	}
	require.NoError(t, json.Unmarshal(b, &config))
	drain, err := time.ParseDuration(config.Cluster.Drain)
	require.NoError(t, err)
	const commands = 10 * time.Second // that have begun when SIGTERM comes
	require.Greater(t, time.Duration(*a.pod().TerminationGracePeriodSeconds)*time.Second, drain+commands)
	require.ElementsMatch(t, []string{"http://etcd-0.etcd:2379", "http://etcd-1.etcd:2379", "http://etcd-2.etcd:2379"}, config.Cluster.Etcd)
	require.Equal(t, "HOST_IP:7481", config.Listen)

	command := strings.Join(c.Command, " ")
	for _, e := range c.Env {
		require.Contains(t, command, "s/"+e.Name+"/$"+e.Name+"/")
		require.Contains(t, string(b), e.Name)
	}
	require.Contains(t, command, "exec rdmacached", "SIGTERM is for it")
	mounts := make(map[string]string)
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	require.Equal(t, filepath.Dir(config.Key), mounts["key"])
	require.Contains(t, command, mounts["config"]+"/rdmacached.json >"+mounts["run"]+"/rdmacached.json")
	for _, v := range a.pod().Volumes {
		if v.Name == "config" {
			require.Equal(t, k.ConfigMapGenerator[0].Name, v.ConfigMap.Name)
		}
	}
}
