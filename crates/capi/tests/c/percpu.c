/* Per-CPU data, locks of parts, and work on them. */
#include "check.h"

#include <afterwork/percpu.h>

#include <sched.h>

static void parts_are_zeroed_and_separate(void)
{
	unsigned long *counts = alloc_percpu(unsigned long);
	unsigned int cpu;

	CHECK(counts != NULL);
	for_each_possible_cpu(cpu) {
		CHECK_EQ(*per_cpu_ptr(counts, cpu), 0);
		*per_cpu_ptr(counts, cpu) = cpu + 1;
	}
	for_each_possible_cpu(cpu)
		CHECK_EQ(*per_cpu_ptr(counts, cpu), cpu + 1);
	if (nr_cpu_ids > 1)
		CHECK((char *)per_cpu_ptr(counts, 1) - (char *)per_cpu_ptr(counts, 0) >= 128);
	free_percpu(counts);
	free_percpu(NULL);
}

struct wide {
	_Alignas(512) char bytes[700];
};

static void parts_are_aligned_as_their_type_is(void)
{
	struct wide *wide = alloc_percpu(struct wide);
	unsigned int cpu;

	for_each_possible_cpu(cpu) {
		CHECK_EQ((uintptr_t)per_cpu_ptr(wide, cpu) % 512, 0);
		memset(per_cpu_ptr(wide, cpu), (int)cpu, sizeof(*wide));
	}
	for_each_possible_cpu(cpu)
		CHECK_EQ(per_cpu_ptr(wide, cpu)->bytes[699], (char)cpu);
	free_percpu(wide);
}

static void failed_allocation_is_null(void)
{
	CHECK(!__alloc_percpu(0, 8));
	CHECK(!__alloc_percpu((size_t)-1, 8));
	CHECK(!__alloc_percpu((size_t)1 << 62, 8));
	CHECK(!__alloc_percpu(8, 300));
}

static void some_cpu_can_run_the_call(void)
{
	unsigned int cpu, nr_online = 0;

	CHECK(num_possible_cpus() >= 1);
	CHECK(raw_smp_processor_id() < nr_cpu_ids);
	for_each_online_cpu(cpu)
		nr_online++;
	CHECK(nr_online >= 1 && nr_online <= nr_cpu_ids);
	CHECK(!cpu_online(100000));
}

static unsigned long *shared;

static void *count_here(void *data)
{
	for (int i = 0; i < 20000; i++) {
		this_cpu_inc(shared);
		this_cpu_add(shared, 3);
		this_cpu_dec(shared);
		if (i % 1000 == 0)
			sched_yield();
	}
	return data;
}

static void additions_of_threads_to_their_cpus_are_kept(void)
{
	pthread_t threads[4];
	unsigned long sum = 0;
	unsigned int cpu;

	shared = alloc_percpu(unsigned long);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, count_here, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for_each_possible_cpu(cpu)
		sum += *per_cpu_ptr(shared, cpu);
	CHECK_EQ(sum, 4 * 20000 * 3);
	free_percpu(shared);
}

static void each_operation_has_the_effect_of_its_name(void)
{
	unsigned int *word = alloc_percpu(unsigned int);
	cpu_set_t before, one;
	unsigned int cpu = raw_smp_processor_id();

	/* Run on one CPU, so that each operation sees the previous one. */
	sched_getaffinity(0, sizeof(before), &before);
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
	this_cpu_write(word, 12);
	CHECK_EQ(this_cpu_read(word), 12);
	this_cpu_and(word, 8);
	this_cpu_or(word, 3);
	CHECK_EQ(this_cpu_read(word), 11);
	this_cpu_sub(word, 1);
	CHECK_EQ(this_cpu_add_return(word, 5), 15);
	CHECK_EQ(this_cpu_xchg(word, 7), 15);
	CHECK_EQ(*this_cpu_ptr(word), 7);
	CHECK_EQ(*raw_cpu_ptr(word), 7);
	CHECK(this_cpu_ptr(word) == per_cpu_ptr(word, cpu));
	sched_setaffinity(0, sizeof(before), &before);
	free_percpu(word);
}

struct cache {
	pw_lock_t lock;
	long nr, sum;
};

static struct cache *caches;

static void *fill(void *data)
{
	unsigned int nr = nr_cpu_ids;

	for (unsigned int i = 0; i < 5000; i++) {
		struct cache *cache = per_cpu_ptr(caches, i % nr);

		pw_lock(&cache->lock);
		cache->nr++;
		cache->sum = cache->nr * 2;
		pw_unlock(&cache->lock);
	}
	return data;
}

static void a_lock_of_a_part_excludes(void)
{
	pthread_t threads[4];
	unsigned int cpu;
	long nr = 0;

	caches = alloc_percpu(struct cache);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, fill, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for_each_possible_cpu(cpu) {
		struct cache *cache = per_cpu_ptr(caches, cpu);

		CHECK_EQ(cache->sum, cache->nr * 2);
		nr += cache->nr;
	}
	CHECK_EQ(nr, 4 * 5000);
	free_percpu(caches);
}

static void held_lock_is_tried_only_briefly(void)
{
	pw_lock_t lock;

	pw_lock_init(&lock);
	CHECK(pw_trylock(&lock));
	CHECK(!pw_trylock(&lock));
	pw_unlock(&lock);
	CHECK(pw_trylock(&lock));
	pw_unlock(&lock);
}

static pw_lock_t slept_for;
static int nr_got;

static void *sleep_for_lock(void *data)
{
	pw_lock(&slept_for);
	nr_got++;
	pw_unlock(&slept_for);
	return data;
}

static void all_waiters_of_a_lock_get_it(void)
{
	pthread_t threads[6];

	pw_lock_init(&slept_for);
	pw_lock(&slept_for);
	for (int i = 0; i < 6; i++)
		pthread_create(&threads[i], NULL, sleep_for_lock, NULL);
	for (int i = 0; i < 200; i++)
		sched_yield();
	pw_unlock(&slept_for);
	for (int i = 0; i < 6; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(nr_got, 6);
}

struct drain {
	struct pw_struct pw;
	int seen_cpu;
};

static void drain_part(struct work_struct *work)
{
	int cpu = pw_get_cpu(work);
	struct cache *cache = per_cpu_ptr(caches, cpu);

	pw_lock(&cache->lock);
	cache->nr = 0;
	pw_unlock(&cache->lock);
	container_of(work, struct drain, pw.work)->seen_cpu = cpu;
}

static void parts_are_drained_by_work_for_their_cpus(void)
{
	struct workqueue_struct *wq = alloc_workqueue("drain", WQ_PERCPU, 0);
	struct drain drains[64];
	unsigned int cpu, nr = nr_cpu_ids < 64 ? nr_cpu_ids : 64;

	caches = alloc_percpu(struct cache);
	for (cpu = 0; cpu < nr; cpu++) {
		per_cpu_ptr(caches, cpu)->nr = 5;
		drains[cpu].seen_cpu = -1;
		INIT_PW(&drains[cpu].pw, drain_part, (int)cpu);
		CHECK(queue_percpu_work_on((int)cpu, wq, &drains[cpu].pw));
	}
	for (cpu = 0; cpu < nr; cpu++) {
		flush_percpu_work(&drains[cpu].pw);
		CHECK_EQ(drains[cpu].seen_cpu, cpu);
		CHECK_EQ(per_cpu_ptr(caches, cpu)->nr, 0);
		CHECK(pw_queue_on((int)cpu, wq, &drains[cpu].pw));
		pw_flush(&drains[cpu].pw);
	}
	destroy_workqueue(wq);
	free_percpu(caches);
}

#define T(name) { #name, name }
const struct test percpu_tests[] = {
	T(parts_are_zeroed_and_separate),
	T(parts_are_aligned_as_their_type_is),
	T(failed_allocation_is_null),
	T(some_cpu_can_run_the_call),
	T(additions_of_threads_to_their_cpus_are_kept),
	T(each_operation_has_the_effect_of_its_name),
	T(a_lock_of_a_part_excludes),
	T(held_lock_is_tried_only_briefly),
	T(all_waiters_of_a_lock_get_it),
	T(parts_are_drained_by_work_for_their_cpus),
	{ NULL, NULL },
};
