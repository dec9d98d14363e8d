/*
 * Many queues at the same time, each with an item. Checks that the memory of a queue is bounded and
 * is reused.
 *
 *     queues [NUMBER]
 */
#include <afterwork/workqueue.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The maximum memory of an idle queue, of a used queue, and of everything else. */
#define MOST_IDLE 4096
#define MOST_USED 8192
#define SLACK (8L << 20)

static long nr_runs;

static void count(struct work_struct *work)
{
	(void)work;
	__atomic_fetch_add(&nr_runs, 1, __ATOMIC_RELAXED);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Returns the resident memory in bytes. */
static long resident(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long all, in_memory;

	if (!file || fscanf(file, "%ld %ld", &all, &in_memory) != 2)
		exit(2);
	fclose(file);
	return in_memory * sysconf(_SC_PAGESIZE);
}

int main(int argc, char **argv)
{
	long number = argc > 1 ? atol(argv[1]) : 100000;
	struct workqueue_struct **queues = calloc((size_t)number, sizeof(struct workqueue_struct *));
	struct work_struct *items = malloc((size_t)number * sizeof(struct work_struct));
	long first_peak = 0;
	bool is_good = true;

	if (!queues || !items)
		return 2;
	for (long i = 0; i < number; i++)
		INIT_WORK(&items[i], count);
	for (int round = 0; round < 2; round++) {
		double start = now(), made, used;
		long before = resident(), idle, peak;

		for (long i = 0; i < number; i++) {
			queues[i] = alloc_workqueue("queue%ld", WQ_UNBOUND, 0, i);
			if (!queues[i])
				return 3;
		}
		made = now();
		idle = resident() - before;
		for (long i = 0; i < number; i++)
			queue_work(queues[i], &items[i]);
		for (long i = 0; i < number; i++)
			flush_work(&items[i]);
		used = now();
		peak = resident();
		for (long i = 0; i < number; i++)
			destroy_workqueue(queues[i]);
		printf("%ld queues: made in %.0f ns each, an item each in %.0f, destroyed in %.0f; %ld bytes each idle, %ld used\n", number,
		       (made - start) / (double)number, (used - made) / (double)number, (now() - used) / (double)number,
		       idle / number, (peak - before) / number);
		is_good &= idle < number * MOST_IDLE + SLACK && peak - before < number * MOST_USED + SLACK;
		/* The second round reuses the memory that the first round freed. */
		if (round == 0)
			first_peak = peak;
		is_good &= peak <= first_peak + first_peak / 20 + SLACK;
	}
	free(items);
	free(queues);
	return is_good && nr_runs == 2 * number ? 0 : 1;
}
