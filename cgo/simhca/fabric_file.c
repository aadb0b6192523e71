//go:build simhca && linux && cgo

/*
 * Files of fabrics: one lock for each slot, and one for changes of the whole, in a folder that
 * the user has alone.
 */
#include "fabric.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* The process that holds locks of a file's bytes, or 0. */
int fabric_holder(int fd, int from, int n)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = n };

	return fcntl(fd, F_GETLK, &l) ? -1 : l.l_type == F_UNLCK ? 0 : l.l_pid;
}

bool fabric_lock(int fd, int from, int type, bool wait)
{
	struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = 1 };
	int r;

	do
		r = fcntl(fd, wait ? F_SETLKW : F_SETLK, &l);
	while (r && errno == EINTR);
	return !r;
}

/* Removes the files of fabrics that have no process any more. */
static void sweep(const char *folder, const char *own)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	char rules[sizeof(e->d_name) + 8];

	while (d && (e = readdir(d))) {
		/* To close a file ends the locks that the process has on it. */
		int fd = strchr(e->d_name, '.') || !strcmp(e->d_name, own) ? -1 : openat(dirfd(d), e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

		if (fd >= 0 && fabric_lock(fd, SIM_NODES, F_WRLCK, false) && !fabric_holder(fd, 0, SIM_NODES)) {
			snprintf(rules, sizeof(rules), "%s.impair", e->d_name);
			unlinkat(dirfd(d), rules, 0);
			unlinkat(dirfd(d), e->d_name, 0);
		}
		if (fd >= 0)
			sim_real.close(fd);
	}
	if (d)
		closedir(d);
}

/* Opens the file of a fabric, with the lock behind those of the slots; a negative number: it cannot be had. */
static int open_file(const char *path)
{
	struct stat st;

	for (;;) {
		int fd = sim_real.open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

		if (fd < 0 || !fabric_lock(fd, SIM_NODES, F_WRLCK, true) || fstat(fd, &st)) {
			sim_print("%s: %s", path, strerror(errno));
			return -1;
		}
		if (st.st_nlink)
			return fd;
		sim_real.close(fd); /* another process has just removed it */
	}
}

/* Opens the file of a fabric; path gets its name. */
int fabric_open(const char *name, char *path, size_t size)
{
	const char *root = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";

	if (!*name || strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != strlen(name) || strlen(name) > 64) {
		sim_print("a fabric's name has up to 64 letters, digits, - and _: %s", name);
		return -1;
	}
	snprintf(path, size, "%s/simhca-fabric-%d", root, (int)geteuid());
	if (mkdir(path, 0700) && errno != EEXIST) {
		sim_print("%s: %s", path, strerror(errno));
		return -1;
	}
	if (!sim_trusted(path)) {
		sim_print("%s is no folder that this user has alone", path);
		return -1;
	}
	sweep(path, name);
	snprintf(path + strlen(path), size - strlen(path), "/%s", name);
	return open_file(path);
}
