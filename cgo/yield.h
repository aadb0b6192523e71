#ifndef GOVERBS_YIELD_H
#define GOVERBS_YIELD_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

/* A call that took as many ns is slow: another program computes. */
enum { GV_SLOW_YIELD = 2000000 };

/*
 * How many calls are left out after a slow one, before which the last slow one had so
 * many left out, or 0 if others came between: 15, and twice as many each time, up to 255.
 * (255 at once made one slow call cost a program that READs an event for each of its
 * next 128 READs.)
 */
static inline int gv_left_out(int before)
{
	int n = 2 * before + 1;

	return n < 15 ? 15 : n > 255 ? 255 : n;
}

/*
 * Gives up the CPU and tells whether that is worth doing again. It is not beside
 * a program that computes, which keeps the CPU for milliseconds: a thread that sleeps until
 * an event gets it back sooner. Then some of the next calls do nothing.
 */
static inline int gv_yield(void)
{
	static int left, last;
	struct timespec before, after;
	int n;

	if (__atomic_load_n(&left, __ATOMIC_RELAXED) > 0) {
		__atomic_sub_fetch(&left, 1, __ATOMIC_RELAXED);
		return 0;
	}
	clock_gettime(CLOCK_MONOTONIC, &before);
	sched_yield();
	clock_gettime(CLOCK_MONOTONIC, &after);
	if ((after.tv_sec - before.tv_sec) * 1000000000LL + after.tv_nsec - before.tv_nsec < GV_SLOW_YIELD) {
		__atomic_store_n(&last, 0, __ATOMIC_RELAXED);
		return 1;
	}
	n = gv_left_out(__atomic_load_n(&last, __ATOMIC_RELAXED));
	__atomic_store_n(&last, n, __ATOMIC_RELAXED);
	__atomic_store_n(&left, n, __ATOMIC_RELAXED);
	return 0;
}

#endif
