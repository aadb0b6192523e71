package debian

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

// ErrUntrusted: what came is not what the archive's key has signed.
var ErrUntrusted = errors.New("not signed by Debian's archive key, or changed since")

// archive is where packages of a release come from.
type archive struct {
	release, arch string
	mirror        func() (string, error)
	keyring       func() (openpgp.EntityList, error)
	pause         time.Duration // before the second try; those before later ones double
	silence       time.Duration // a reply in which nothing comes for so long is given up
}

func hostArchive(release, arch string) *archive {
	return &archive{release: release, arch: arch, mirror: hostMirror, keyring: hostKeyring, pause: time.Second, silence: time.Minute}
}

// hostKeyring returns the keys of package debian-archive-keyring.
func hostKeyring() (openpgp.EntityList, error) {
	var failed error
	for _, name := range []string{"debian-archive-keyring.gpg", "debian-archive-keyring.pgp"} {
		f, err := os.Open("/usr/share/keyrings/" + name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		defer f.Close()
		return openpgp.ReadKeyRing(f)
	}
	return nil, fmt.Errorf("the host lacks package debian-archive-keyring: %w", failed)
}

// dists returns the folder of the package index below the mirror.
func (a *archive) dists() string {
	return fmt.Sprintf("dists/%s/main/binary-%s", a.release, a.arch)
}

// release256 returns the checksum of the release's package index. A release
// that says until when it is valid is taken after that too: a mirror that
// stands still serves tests well.
func (a *archive) release256(ctx context.Context) (string, error) {
	var signed []byte
	err := a.get(ctx, "dists/"+a.release+"/InRelease", func(body io.Reader) (err error) {
		signed, err = io.ReadAll(body)
		return err
	})
	if err != nil {
		return "", err
	}
	keys, err := a.keyring()
	if err != nil {
		return "", err
	}
	block, _ := clearsign.Decode(signed)
	if block == nil {
		return "", fmt.Errorf("%w: InRelease has no signature", ErrUntrusted)
	}
	if _, err := block.VerifySignature(keys, nil); err != nil {
		return "", fmt.Errorf("%w: InRelease: %w", ErrUntrusted, err)
	}
	// Only what is inside of the signature counts.
	return indexSum(string(block.Plaintext), "main/binary-"+a.arch+"/Packages.gz")
}

// indexSum finds the checksum of a file in a Release file.
func indexSum(text, file string) (string, error) {
	in := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			in = strings.TrimSpace(line) == "SHA256:"
			continue
		}
		if f := strings.Fields(line); in && len(f) == 3 && f[2] == file {
			return f[0], nil
		}
	}
	return "", fmt.Errorf("the release has no %s", file)
}

// download stores a file of the archive that has that SHA-256.
func (a *archive) download(ctx context.Context, path, to, sum string) error {
	return a.get(ctx, path, func(body io.Reader) error {
		tmp := to + ".part"
		f, err := os.Create(tmp)
		if err != nil {
			return err
		}
		defer os.Remove(tmp)
		h := sha256.New()
		_, err = io.Copy(io.MultiWriter(f, h), body)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if got := fmt.Sprintf("%x", h.Sum(nil)); got != sum {
			return fmt.Errorf("%w: its SHA-256 is %s, the index says %s", ErrUntrusted, got, sum)
		}
		return os.Rename(tmp, to)
	})
}

// tries is how often a file is asked for: a network that is back after ten seconds
// costs no run.
const tries = 5

// get reads a file of the archive, with more tries if that fails.
func (a *archive) get(ctx context.Context, path string, read func(io.Reader) error) error {
	mirror, err := a.mirror()
	if err != nil {
		return err
	}
	url := mirror + "/" + path
	for try := 1; ; try++ {
		err := a.getOnce(ctx, url, read)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("get %s: %w", url, context.Cause(ctx))
		case errors.Is(err, ErrUntrusted), errors.Is(err, errMissing), try == tries:
			return fmt.Errorf("get %s: %w", url, err)
		}
		a.wait(ctx, try)
	}
}

// wait is the pause after a try, or the end of the context.
func (a *archive) wait(ctx context.Context, try int) {
	select {
	case <-ctx.Done():
	case <-time.After(a.pause << (try - 1)):
	}
}

var (
	errMissing = errors.New("the archive has no such file")
	errSilent  = errors.New("the archive sends nothing")
)

func (a *archive) getOnce(ctx context.Context, url string, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(a.silence, func() { cancel(errSilent) })
	defer silent.Stop()
	err := getFile(ctx, url, func(body io.Reader) error {
		return read(readerFunc(func(b []byte) (int, error) {
			n, err := body.Read(b)
			silent.Reset(a.silence)
			return n, err
		}))
	})
	if err != nil && context.Cause(ctx) == errSilent {
		return errSilent
	}
	return err
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func getFile(ctx context.Context, url string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return read(res.Body)
	case http.StatusNotFound:
		return errMissing
	}
	return errors.New(res.Status)
}
