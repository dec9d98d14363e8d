/* Runs functions on each CPU in a process that may use only one CPU. */
#define _GNU_SOURCE
#include <afterwork/workqueue.h>

#include <sched.h>

static int nr_runs[1024];

static void count(struct work_struct *work)
{
	(void)work;
	__atomic_add_fetch(&nr_runs[sched_getcpu()], 1, __ATOMIC_RELAXED);
}

int main(void)
{
	cpu_set_t allowed;
	unsigned int last = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return 1;
	for (unsigned int cpu = 0; cpu < 1024; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			last = cpu;
	CPU_ZERO(&allowed);
	CPU_SET(last, &allowed);
	if (sched_setaffinity(0, sizeof(allowed), &allowed) || schedule_on_each_cpu(count))
		return 2;
	for (unsigned int cpu = 0; cpu < 1024; cpu++)
		if ((nr_runs[cpu] == 1) != (cpu == last))
			return 3;
	return 0;
}
