//go:build simhca && linux && cgo

/*
 * The folders in which libibverbs looks for devices. They depend on the devices
 * alone, so that programs share them and none has to remove them: Go programs
 * end without a word to the C library.
 */
#include "sim.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool failed;

/* Makes the folders that a file is in. */
static void make_folders(char *path)
{
	for (char *s = path + 1; (s = strchr(s, '/')); s++) {
		*s = 0;
		mkdir(path, 0700);
		*s = '/';
	}
}

static void put(const char *root, const char *name, const char *text)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	make_folders(path);
	fd = sim_real.open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	failed |= fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text);
	if (fd >= 0)
		sim_real.close(fd);
}

static void put_link(const char *root, const char *name, const char *to)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	make_folders(path);
	failed |= symlink(to, path) != 0;
}

static void put_gid(const char *root, const struct sim_device *d, int i)
{
	const struct sim_gid *g = &d->gids[i];
	char name[128], text[64], *s = text;

	for (int k = 0; k < 16; k += 2)
		s += sprintf(s, "%02x%02x%c", g->raw[k], g->raw[k + 1], k == 14 ? '\n' : ':');
	snprintf(name, sizeof(name), "class/infiniband/%s/ports/1/gids/%d", d->name, i);
	put(root, name, text);
	snprintf(name, sizeof(name), "class/infiniband/%s/ports/1/gid_attrs/types/%d", d->name, i);
	put(root, name, g->v2 ? "RoCE v2\n" : "IB/RoCE v1\n");
	if (d->ib || d->model != &sim_mlx5)
		return;
	snprintf(name, sizeof(name), "class/infiniband/%s/ports/1/gid_attrs/ndevs/%d", d->name, i);
	put(root, name, "lo\n");
}

static void put_device(const char *root, const struct sim_device *d)
{
	char name[128], text[128];
	bool mlx5 = d->model == &sim_mlx5;
	const uint64_t g = d->guid;

#define FILE(format, ...) (snprintf(name, sizeof(name), format, ##__VA_ARGS__), name)
	/* The folder is a link to one below that of the PCI function, which UCX goes up to. */
	snprintf(text, sizeof(text), "0x%04x\n", mlx5 ? 0x15b3 : 0x1d0f);
	put(root, FILE("devices/%s/vendor", d->name), text);
	snprintf(text, sizeof(text), "0x%04x\n", d->part);
	put(root, FILE("devices/%s/device", d->name), text);
	put(root, FILE("devices/%s/infiniband/%s/node_type", d->name, d->name), mlx5 ? "1: CA\n" : "7: unspecified\n");
	put_link(root, FILE("devices/%s/infiniband/%s/device", d->name, d->name), "../..");
	snprintf(text, sizeof(text), "../../devices/%s/infiniband/%s", d->name, d->name);
	put_link(root, FILE("class/infiniband/%s", d->name), text);
	put(root, FILE("class/infiniband_verbs/uverbs%d/ibdev", d->number), d->name);
	put(root, FILE("class/infiniband_verbs/uverbs%d/dev", d->number), "1:3\n"); /* that of /dev/null */
	put(root, FILE("class/infiniband_verbs/uverbs%d/abi_version", d->number), "1\n");
	snprintf(text, sizeof(text), "%04x:%04x:%04x:%04x\n", (int)(g >> 48), (int)(g >> 32 & 0xffff), (int)(g >> 16 & 0xffff), (int)(g & 0xffff));
	put(root, FILE("class/infiniband/%s/node_guid", d->name), text);
	put(root, FILE("class/infiniband/%s/sys_image_guid", d->name), text);
	put(root, FILE("class/infiniband/%s/fw_ver", d->name), mlx5 ? "20.99.0001\n" : "1.99.0.0\n");
	if (mlx5)
		put(root, FILE("class/infiniband/%s/board_id", d->name), "SIM0000000001\n");
	snprintf(text, sizeof(text), "pci:v0000%04Xd0000%04Xsv0000%04Xsd00000007bc02sc00i00\n", mlx5 ? 0x15b3 : 0x1d0f, d->part, mlx5 ? 0x15b3 : 0x1d0f);
	put(root, FILE("class/infiniband/%s/device/modalias", d->name), text);
	put(root, FILE("class/infiniband/%s/ports/1/pkeys/0", d->name), "0xffff\n");
	put(root, FILE("class/infiniband/%s/ports/1/link_layer", d->name), mlx5 && !d->ib ? "Ethernet\n" : "InfiniBand\n");
	put(root, FILE("class/infiniband/%s/ports/1/state", d->name), "4: ACTIVE\n");
	for (int i = 0; i < d->ngids; i++)
		put_gid(root, d, i);
#undef FILE
}

/* No other user may have written what the library reads there. */
bool sim_trusted(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022);
}

static uint32_t hash(uint32_t h, const void *p, size_t n)
{
	for (const uint8_t *b = p; n; n--)
		h = (h ^ *b++) * 16777619;
	return h;
}

/* What a parent with simulated devices has left to a program without. */
void sim_no_sysfs(void)
{
	const char *path = getenv("SYSFS_PATH");

	if (path && strstr(path, "/simhca-"))
		unsetenv("SYSFS_PATH");
}

bool sim_sysfs(void)
{
	const char *tmp = getenv("TMPDIR");
	char root[200], made[232];
	uint32_t name = 2166136261u;

	for (int i = 0; i < sim_self->ndevices; i++) {
		const struct sim_device *d = &sim_self->devices[i];

		name = hash(name, d->name, sizeof(d->name));
		name = hash(name, d->gids, sizeof(d->gids));
		name = hash(name, &d->guid, sizeof(d->guid));
		name = hash(name, &d->part, sizeof(d->part));
		name = hash(name, &d->ib, sizeof(d->ib));
	}
	/* The number counts changes of what else is written. */
	if (snprintf(root, sizeof(root), "%s/simhca-4-%d-%08x", tmp ? tmp : "/tmp", (int)geteuid(), name) >= (int)sizeof(root)) {
		sim_print("TMPDIR is too long");
		return false;
	}
	if (!sim_trusted(root)) {
		snprintf(made, sizeof(made), "%s.%d", root, (int)getpid());
		if (mkdir(made, 0700)) {
			sim_print("%s: %s", made, strerror(errno));
			return false;
		}
		put(made, "class/infiniband_verbs/abi_version", "6\n");
		for (int i = 0; i < sim_self->ndevices; i++)
			put_device(made, &sim_self->devices[i]);
		/* Another process may have been faster; what it made is the same. */
		if (failed || (rename(made, root) && !sim_trusted(root))) {
			sim_print("the folder %s cannot be written", root);
			return false;
		}
	}
	setenv("SYSFS_PATH", root, 1);
	return true;
}
