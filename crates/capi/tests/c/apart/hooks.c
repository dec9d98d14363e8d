/*
 * Tests hooks. Each thread that runs items calls them when it starts, and when it has finished its
 * work.
 */
#include "../check.h"

#include <afterwork/workqueue.h>

#include <unistd.h>

static __thread int nr_starts;
static int nr_started, nr_stopped, nr_bad, nr_older;

static void older(void)
{
	__atomic_add_fetch(&nr_older, 1, __ATOMIC_RELAXED);
}

static void start(void)
{
	nr_starts++;
	__atomic_add_fetch(&nr_started, 1, __ATOMIC_RELAXED);
	older();
}

static void stop(void)
{
	if (nr_starts != 1)
		__atomic_add_fetch(&nr_bad, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&nr_stopped, 1, __ATOMIC_RELAXED);
}

static void look(struct work_struct *work)
{
	(void)work;
	if (nr_starts != 1)
		__atomic_add_fetch(&nr_bad, 1, __ATOMIC_RELAXED);
}

int main(void)
{
	struct workqueue_struct *wq;
	DECLARE_WORK(work, look);

	if (afterwork_on_worker_start(older) || afterwork_on_worker_stop(stop))
		return 1;
	if (afterwork_on_worker_start(start) != older)
		return 2;
	/* A rescuer runs items as well, and ends with its queue. */
	wq = alloc_workqueue("hooks", WQ_UNBOUND | WQ_MEM_RECLAIM, 1);
	if (!wq || !queue_work(wq, &work))
		return 3;
	flush_workqueue(wq);
	destroy_workqueue(wq);
	while (__atomic_load_n(&nr_stopped, __ATOMIC_RELAXED) == 0)
		usleep(100);
	if (afterwork_on_worker_start(NULL) != start || afterwork_on_worker_stop(NULL) != stop)
		return 4;
	return nr_bad || nr_started < 2 || nr_older != nr_started ? 5 : 0;
}
