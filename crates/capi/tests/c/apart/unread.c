/*
 * Tests per-CPU data in a process that cannot open any file, so that the library cannot read the
 * machine.
 */
#define _GNU_SOURCE
#include <afterwork/percpu.h>

#include <sched.h>
#include <sys/resource.h>

static cpu_set_t allowed;

/* Runs before the library reads the machine, because this is the linker's first object. */
__attribute__((constructor(101))) static void open_no_file(void)
{
	struct rlimit limit = { 0, 0 };

	if (sched_getaffinity(0, sizeof(allowed), &allowed) || setrlimit(RLIMIT_NOFILE, &limit))
		abort();
}

int main(void)
{
	unsigned long *counts, sum = 0;
	unsigned int cpu, nr_cpus = 0;
	cpu_set_t one;

	counts = alloc_percpu(unsigned long);
	if (!counts)
		return 2;
	for (cpu = 0; cpu < 1024; cpu++) {
		if (!CPU_ISSET(cpu, &allowed))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one))
			continue;
		if (raw_smp_processor_id() >= nr_cpu_ids)
			return 3;
		this_cpu_inc(counts);
		nr_cpus++;
	}
	for_each_possible_cpu(cpu)
		sum += *per_cpu_ptr(counts, cpu);
	free_percpu(counts);
	return sum == nr_cpus ? 0 : 4;
}
