//go:build simhca && linux && cgo

/*
 * The device's clock, in nanoseconds: a page that programs read it from, and one that
 * the kernel writes, by which they turn it into the time of day. The first one is
 * brought up to date by every turn of the devices and every completion, so that it
 * may be late, but never behind the timestamp of a completion that was seen.
 */
#include "mlx5.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, OVERFLOW = 1 << 30 };

static uint8_t *pages; /* clock, and what the kernel tells */
static int pages_fd;

uint64_t mx_tick(void)
{
	uint64_t now = sim_now();

	if (pages)
		__atomic_store_n((uint64_t *)pages, htobe64(now), __ATOMIC_RELEASE);
	return now;
}

static void make_pages(void)
{
	struct mlx5_ib_clock_info info = { .mult = 1, .mask = ~0ull, .overflow_period = OVERFLOW };
	struct timespec t;

	pages_fd = memfd_create("simhca", MFD_CLOEXEC);
	if (pages_fd < 0 || ftruncate(pages_fd, 2 * PAGE))
		goto failed;
	pages = sim_real.mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, pages_fd, 0);
	if (pages == MAP_FAILED)
		goto failed;
	info.cycles = mx_tick();
	clock_gettime(CLOCK_REALTIME, &t);
	info.nsec = t.tv_sec * 1000000000ull + t.tv_nsec;
	memcpy(pages + PAGE, &info, sizeof(info));
	return;
failed:
	perror("simhca: the clock");
	abort();
}

/* Maps one of the pages; command is that of the offset (enum mlx5_ib_mmap_cmd). */
void *mx_map_clock(void *addr, size_t len, int prot, int flags, unsigned command)
{
	if (len > PAGE || prot & PROT_WRITE) {
		errno = sim_refuse(EPERM, "the clock is there to be read");
		return MAP_FAILED;
	}
	if (!pages)
		make_pages();
	mx_tick();
	return sim_real.mmap(addr, len, PROT_READ, MAP_SHARED | (flags & MAP_FIXED), pages_fd, command == MLX5_IB_MMAP_CLOCK_INFO ? PAGE : 0);
}
