/*
 * Tests the queues of a process that may not set a negative nice value. Exits with 77 if the
 * process may do so.
 */
#include "../check.h"

#include <afterwork/workqueue.h>

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

static int seen = 99;

static void see(struct work_struct *work)
{
	(void)work;
	seen = getpriority(PRIO_PROCESS, 0);
}

/* Returns the nice value with which an item of WQ runs, and destroys WQ. */
static int seen_by(struct workqueue_struct *wq)
{
	DECLARE_WORK(work, see);

	if (!wq)
		return 98;
	seen = 99;
	queue_work(wq, &work);
	/* drain_workqueue never runs an item on this thread. */
	drain_workqueue(wq);
	destroy_workqueue(wq);
	return seen;
}

int main(void)
{
	const struct rlimit none = { 0, 0 };
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();
	struct workqueue_struct *wq = alloc_workqueue("plain", WQ_UNBOUND, 0);
	/* The tests may run with a nice value other than 0. */
	const int own = getpriority(PRIO_PROCESS, 0);

	if (setpriority(PRIO_PROCESS, 0, -20) == 0) {
		setpriority(PRIO_PROCESS, 0, own);
		if (seen_by(alloc_workqueue("high", WQ_HIGHPRI, 0)) != -20)
			return 5;
	}
	if (setrlimit(RLIMIT_NICE, &none) || (geteuid() == 0 && setuid(65534)))
		return 77;
	attrs->nice = -1;
	cpumask_setall(attrs->cpumask);
	if (apply_workqueue_attrs(wq, attrs) != -EPERM)
		return 1;
	free_workqueue_attrs(attrs);
	if (seen_by(wq) != own)
		return 2;
	return seen_by(alloc_workqueue("high", WQ_HIGHPRI, 0)) == own ? 0 : 3;
}
