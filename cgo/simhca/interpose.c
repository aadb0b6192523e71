//go:build simhca && linux && cgo

/*
 * The calls of the C library that lead to a device. Libraries come here before
 * they come there, since the program's own symbols are looked for first.
 */
#include "sim.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct sim_real sim_real;

static bool active;
static pid_t owner; /* of the devices */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_lock(void) { pthread_mutex_lock(&lock); }
bool sim_trylock(void) { return !pthread_mutex_trylock(&lock); }
void sim_unlock(void) { pthread_mutex_unlock(&lock); }

/* Constructors of other libraries open files before ours runs. */
void sim_resolve(void)
{
	if (sim_real.mmap)
		return;
	sim_real.open = dlsym(RTLD_NEXT, "open");
	sim_real.stat = dlsym(RTLD_NEXT, "stat");
	sim_real.access = dlsym(RTLD_NEXT, "access");
	sim_real.ioctl = dlsym(RTLD_NEXT, "ioctl");
	sim_real.close = dlsym(RTLD_NEXT, "close");
	sim_real.read = dlsym(RTLD_NEXT, "read");
	sim_real.socket = dlsym(RTLD_NEXT, "socket");
	sim_real.mmap = dlsym(RTLD_NEXT, "mmap");
}

/* The child of a fork has no thread, and no business with its parent's objects. */
static void forked(void)
{
	sim_engine_forget();
	sim_fabric_forget();
	sim_objects_forget();
	owner = getpid();
	sim_unlock();
}

__attribute__((constructor)) static void start(void)
{
	sim_resolve();
	owner = getpid();
	if (!sim_configure()) {
		sim_no_sysfs();
		return;
	}
	if (!sim_sysfs())
		return;
	pthread_atfork(sim_lock, sim_unlock, forked);
	active = true;
}

/* The number of a simulated device's node, or -1. */
static int node(const char *path)
{
	int n, end = 0;

	if (!active || !path || sscanf(path, "/dev/infiniband/uverbs%d%n", &n, &end) != 1 || path[end])
		return -1;
	return n >= 0 && n < sim_self->ndevices ? n : -1;
}

/* UCX reads the folders of devices where the kernel has them, whatever SYSFS_PATH says. */
static const char *moved(const char *path, char *to, size_t n)
{
	static const char sysfs[] = "/sys/class/infiniband/";
	const char *name = path, *root = getenv("SYSFS_PATH");

	if (!active || !root || !path || strncmp(path, sysfs, sizeof(sysfs) - 1))
		return path;
	name += sizeof(sysfs) - 1;
	for (int i = 0; i < sim_self->ndevices; i++) {
		size_t len = strlen(sim_self->devices[i].name);

		if (!strncmp(name, sim_self->devices[i].name, len) && name[len] == '/' && snprintf(to, n, "%s/class/infiniband/%s", root, name) < (int)n)
			return to;
	}
	return path;
}

/* The kernel's connection manager knows no simulated device: librdmacm has to do without it. */
static bool refused(const char *path)
{
	static bool told;

	if (!active || !path || strcmp(path, "/dev/infiniband/rdma_cm"))
		return false;
	if (!told)
		sim_print("the connection manager (librdmacm) is not simulated; have the program exchange addresses itself, as perftest does without -R");
	told = true;
	errno = EOPNOTSUPP;
	return true;
}

int open(const char *path, int flags, ...)
{
	char other[512];
	va_list ap;
	mode_t mode;
	int n, fd;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	sim_resolve();
	if (refused(path))
		return -1;
	n = node(path);
	if (n < 0)
		return sim_real.open(moved(path, other, sizeof(other)), flags, mode);
	sim_lock();
	fd = sim_open(n);
	sim_unlock();
	return fd;
}

int open64(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	return open(path, flags, mode);
}

int stat(const char *path, struct stat *st)
{
	sim_resolve();
	return sim_real.stat(node(path) < 0 ? path : "/dev/null", st);
}

/* UCX asks before it opens a device. */
int access(const char *path, int mode)
{
	sim_resolve();
	return sim_real.access(node(path) < 0 ? path : "/dev/null", mode);
}

/* Devices are found in sysfs, and not by netlink, which knows the kernel's. */
int socket(int family, int type, int protocol)
{
	sim_resolve();
	if (active && family == AF_NETLINK && protocol == NETLINK_RDMA) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return sim_real.socket(family, type, protocol);
}

/*
 * A child of vfork closes its own descriptors and has its parent's memory; and there
 * are ways to fork without a call that is intercepted.
 */
int close(int fd)
{
	sim_resolve();
	if (sim_fabric_file(fd))
		return 0;
	if (active && getpid() == owner) {
		sim_lock();
		sim_close(fd);
		sim_unlock();
	}
	return sim_real.close(fd);
}

/* Where no more events come, the end is an error. */
ssize_t read(int fd, void *to, size_t n)
{
	ssize_t got;
	bool end = false;

	sim_resolve();
	got = sim_real.read(fd, to, n);
	if (got || !n || !active)
		return got;
	sim_lock();
	end = sim_shut(fd);
	sim_unlock();
	if (!end)
		return 0;
	errno = EIO;
	return -1;
}

/* Go's runtime asks for memory in here, and may hold locks: those without a file pass. */
void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	struct sim_ctx *c;
	void *p = MAP_FAILED;

	sim_resolve();
	if (!active || fd < 0)
		return sim_real.mmap(addr, len, prot, flags, fd, off);
	sim_lock();
	c = sim_ctx_of(fd);
	if (c)
		p = c->dev->model->map(c, addr, len, prot, flags, off);
	sim_unlock();
	return c ? p : sim_real.mmap(addr, len, prot, flags, fd, off);
}

void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return mmap(addr, len, prot, flags, fd, off);
}

int ioctl(int fd, unsigned long request, ...)
{
	struct sim_ctx *c;
	va_list ap;
	void *arg;
	int err = 0;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	sim_resolve();
	if (!active || request != RDMA_VERBS_IOCTL)
		return sim_real.ioctl(fd, request, arg);
	sim_lock();
	c = sim_ctx_of(fd);
	if (c) {
		sim_change();
		err = sim_ioctl(c, arg);
		sim_changed();
	}
	sim_unlock();
	sim_rouse();
	if (!c)
		return sim_real.ioctl(fd, request, arg);
	errno = err ? err : errno;
	return err ? -1 : 0;
}
