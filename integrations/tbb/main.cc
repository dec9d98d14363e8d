// SPDX-License-Identifier: MIT OR Apache-2.0
// Compares queues of afterwork, used from C, with oneTBB's task groups and arenas, in one process
// and in alternating turns. Prints the ratio of afterwork's time to oneTBB's, in elapsed time and
// in CPU time of the process: median, minimum, maximum.
#include <afterwork/workqueue.h>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>
#include <oneapi/tbb/version.h>

#include <semaphore.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int BATCH = 1000, FAN = 64, BURN_NS = 2000;

struct Spent {
	double wall, cpu;
};

double now(clockid_t clock)
{
	timespec time;
	clock_gettime(clock, &time);
	return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Returns the mean elapsed time and CPU time of `count` operations, in ns.
template <typename What> Spent timed(What what, long count)
{
	double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
	long nr_done = what(count);
	if (nr_done != count) {
		std::fprintf(stderr, "%ld of %ld have run\n", nr_done, count);
		std::abort();
	}
	return { (now(CLOCK_MONOTONIC) - wall) / static_cast<double>(count) * 1e9,
		 (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / static_cast<double>(count) * 1e9 };
}

void burn()
{
	double until = now(CLOCK_MONOTONIC) + BURN_NS * 1e-9;
	while (now(CLOCK_MONOTONIC) < until)
		;
}

std::atomic<long> nr_run;
sem_t gate;

void wait_at_gate()
{
	while (sem_wait(&gate) != 0)
		;
}

// ---- ours ----

struct workqueue_struct *wq;
std::vector<work_struct> items(BATCH);

void count_work(struct work_struct *)
{
	nr_run.fetch_add(1, std::memory_order_relaxed);
}

void post_work(struct work_struct *)
{
	nr_run.fetch_add(1, std::memory_order_relaxed);
	sem_post(&gate);
}

void burn_work(struct work_struct *)
{
	burn();
	nr_run.fetch_add(1, std::memory_order_relaxed);
}

void fan_work(struct work_struct *)
{
	for (int i = 0; i < FAN; i++)
		queue_work(wq, &items[static_cast<size_t>(i)]);
}

void lay_out(work_func_t func)
{
	nr_run = 0;
	for (auto &item : items)
		INIT_WORK(&item, func);
}

long ours_helped(long count)
{
	lay_out(count_work);
	for (long i = 0; i < count; i++) {
		queue_work(wq, &items[0]);
		flush_work(&items[0]);
	}
	return nr_run;
}

long ours_handed(long count)
{
	lay_out(post_work);
	for (long i = 0; i < count; i++) {
		queue_work(wq, &items[0]);
		wait_at_gate();
		// The run that opened the gate may not have ended.
		flush_work(&items[0]);
	}
	return nr_run;
}

long ours_batches(long count)
{
	lay_out(count_work);
	for (long i = 0; i < count; i += BATCH) {
		for (auto &item : items)
			queue_work(wq, &item);
		flush_workqueue(wq);
	}
	return nr_run;
}

long ours_fanned(long count)
{
	struct work_struct root;
	lay_out(burn_work);
	INIT_WORK(&root, fan_work);
	for (long i = 0; i < count; i += FAN) {
		queue_work(wq, &root);
		drain_workqueue(wq);
	}
	return nr_run;
}

// ---- theirs ----

tbb::task_arena *arena;

void count_task()
{
	nr_run.fetch_add(1, std::memory_order_relaxed);
}

long theirs_helped(long count)
{
	tbb::task_group group;
	nr_run = 0;
	for (long i = 0; i < count; i++) {
		group.run(count_task);
		group.wait();
	}
	return nr_run;
}

long theirs_handed(long count)
{
	nr_run = 0;
	for (long i = 0; i < count; i++) {
		arena->enqueue([] {
			count_task();
			sem_post(&gate);
		});
		wait_at_gate();
	}
	return nr_run;
}

long theirs_batches(long count)
{
	tbb::task_group group;
	nr_run = 0;
	for (long i = 0; i < count; i += BATCH) {
		for (int j = 0; j < BATCH; j++)
			group.run(count_task);
		group.wait();
	}
	return nr_run;
}

long theirs_fanned(long count)
{
	tbb::task_group group;
	nr_run = 0;
	for (long i = 0; i < count; i += FAN) {
		group.run([&group] {
			for (int j = 0; j < FAN; j++)
				group.run([] {
					burn();
					count_task();
				});
		});
		group.wait();
	}
	return nr_run;
}

// ---- alternating turns ----

struct Row {
	std::vector<double> values;
	double at(double part)
	{
		std::sort(values.begin(), values.end());
		return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
	}
};

void compare(const char *name, long (*ours)(long), long (*theirs)(long), long count, int nr_turns)
{
	Row mine, other, wall, cpu;
	timed(ours, count);
	timed(theirs, count);
	for (int turn = 0; turn < nr_turns; turn++) {
		Spent a, b;
		// The order of the two alternates.
		if (turn % 2) {
			a = timed(ours, count);
			b = timed(theirs, count);
		} else {
			b = timed(theirs, count);
			a = timed(ours, count);
		}
		mine.values.push_back(a.wall);
		other.values.push_back(b.wall);
		wall.values.push_back(a.wall / b.wall);
		cpu.values.push_back(a.cpu / b.cpu);
	}
	std::printf("%-36s %8ld %9.0f %9.0f   %5.2f (%.2f to %.2f)   %5.2f (%.2f to %.2f)\n", name, count, mine.at(0.5), other.at(0.5),
		    wall.at(0.5), wall.at(0), wall.at(1), cpu.at(0.5), cpu.at(0), cpu.at(1));
}

} // namespace

int main(int argc, char **argv)
{
	int nr_turns = argc > 1 ? std::atoi(argv[1]) : 21;

	if (nr_turns < 1)
		return 2;
	sem_init(&gate, 0, 0);
	wq = alloc_workqueue("tbb", WQ_UNBOUND, 0);
	// There is a worker for each CPU, and the caller only submits.
	tbb::global_control threads(tbb::global_control::max_allowed_parallelism,
				    static_cast<size_t>(tbb::info::default_concurrency()) + 1);
	arena = new tbb::task_arena(tbb::info::default_concurrency(), 0);
	std::printf("%d turns, oneTBB %d.%d, %d CPUs\n%-36s %8s %9s %9s   %-20s   %s\n", nr_turns, TBB_VERSION_MAJOR, TBB_VERSION_MINOR,
		    tbb::info::default_concurrency(), "", "n", "ours, ns", "TBB, ns", "ours / TBB, clock", "the same, CPU time");
	compare("one at a time, the waiter helps", ours_helped, theirs_helped, 20000, nr_turns);
	compare("one at a time, by a worker", ours_handed, theirs_handed, 5000, nr_turns);
	compare("batches of 1000", ours_batches, theirs_batches, 50 * BATCH, nr_turns);
	compare("fan-out: an item queues 64 of 2 us", ours_fanned, theirs_fanned, 50 * FAN, nr_turns);
	destroy_workqueue(wq);
	delete arena;
	return 0;
}
