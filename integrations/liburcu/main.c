/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures both libraries in one process, in alternating turns. Prints the ratio of
 * afterwork's time to liburcu's: median, minimum, maximum.
 */
#include "sides.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST_TURNS 101

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double timed(long (*what)(long), long count)
{
	double start = now();

	if (what(count) == 0)
		abort();
	return (now() - start) / (double)count * 1e9;
}

static int by_size(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;

	return (difference > 0) - (difference < 0);
}

static void compare(const char *name, long (*ours)(long), long (*theirs)(long), long count, int nr_turns)
{
	double ratios[MOST_TURNS], mine[MOST_TURNS], other[MOST_TURNS];

	/* Warm up both. */
	(void)timed(ours, count / 10 + 1);
	(void)timed(theirs, count / 10 + 1);
	for (int turn = 0; turn < nr_turns; turn++) {
		/* The library that runs first alternates. */
		if (turn % 2) {
			mine[turn] = timed(ours, count);
			other[turn] = timed(theirs, count);
		} else {
			other[turn] = timed(theirs, count);
			mine[turn] = timed(ours, count);
		}
		ratios[turn] = mine[turn] / other[turn];
	}
	qsort(ratios, (size_t)nr_turns, sizeof(double), by_size);
	qsort(mine, (size_t)nr_turns, sizeof(double), by_size);
	qsort(other, (size_t)nr_turns, sizeof(double), by_size);
	printf("%-34s %10.2f %10.2f   %5.2f (%.2f to %.2f)\n", name, mine[nr_turns / 2], other[nr_turns / 2],
	       ratios[nr_turns / 2], ratios[0], ratios[nr_turns - 1]);
}

int main(int argc, char **argv)
{
	int nr_turns = argc > 1 ? atoi(argv[1]) : 21;

	if (nr_turns < 1 || nr_turns > MOST_TURNS)
		return 2;
	ours_side.begin();
	theirs_side.begin();
	printf("%d turns%34s %10s   ours / liburcu memb\n", nr_turns, "ours, ns", "liburcu, ns");
	compare("read lock and unlock", ours_side.pairs, theirs_side.pairs, 10000000, nr_turns);
	compare("the same inside a section", ours_side.nested, theirs_side.nested, 10000000, nr_turns);
	compare("call_rcu, malloc and free", ours_side.calls, theirs_side.calls, 200000, nr_turns);
	compare("synchronize_rcu, nobody reads", ours_side.waits, theirs_side.waits, 1000, nr_turns);
	theirs_side.end();
	ours_side.end();
	return 0;
}
