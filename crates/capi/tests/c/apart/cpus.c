/* A program that sets the CPUs of the library only once, before the first use. */
#include "../check.h"

#include <afterwork/machine.h>
#include <afterwork/percpu.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>

static sem_t ran;

static void run(struct work_struct *work)
{
	(void)work;
	sem_post(&ran);
}

int main(void)
{
	static const char *const bad[] = { NULL, "", "x", "0-", "3-1", "99999999", "\xff" };
	struct workqueue_struct *wq;
	struct work_struct work;
	cpu_set_t allowed;
	unsigned int i, last = 0;
	char list[32];

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return 1;
	for (i = 0; i < 1024; i++)
		if (CPU_ISSET(i, &allowed))
			last = i;
	for (i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (afterwork_set_cpus(bad[i]) != -EINVAL)
			return 2;
	snprintf(list, sizeof(list), "%u\n", last);
	if (afterwork_set_cpus(list) || afterwork_set_cpus(list) != -EBUSY)
		return 3;
	if (nr_cpu_ids <= last || !cpu_online(last) || (last > 0 && cpu_online(last - 1)))
		return 4;
	wq = alloc_workqueue("given", WQ_UNBOUND, 0);
	if (!wq)
		return 5;
	gate_init(&ran);
	INIT_WORK(&work, run);
	queue_work(wq, &work);
	gate_wait(&ran);
	destroy_workqueue(wq);
	return 0;
}
