/*
 * Tests failing allocations and thread creations. A walk through all functions that allocate is
 * repeated. Each time, the nth allocation or the nth thread creation fails, and sometimes also all
 * later thread creations.
 */
#include "refuse.h"

#include <afterwork/percpu.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

static void count(struct work_struct *work)
{
	(void)work;
}

static void call(struct rcu_head *head)
{
	(void)head;
}

static void call_task(struct callback_head *work)
{
	(void)work;
}

static void use(struct workqueue_struct *wq)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();
	struct delayed_work dwork;
	struct work_struct work;
	struct rcu_work rwork;

	INIT_WORK(&work, count);
	INIT_DELAYED_WORK(&dwork, count);
	INIT_RCU_WORK(&rwork, count);
	queue_work(wq, &work);
	flush_work(&work);
	queue_work(wq, &work);
	cancel_work_sync(&work);
	queue_delayed_work(wq, &dwork, 1);
	flush_delayed_work(&dwork);
	mod_delayed_work(wq, &dwork, 1000 * HZ);
	cancel_delayed_work_sync(&dwork);
	queue_rcu_work(wq, &rwork);
	flush_rcu_work(&rwork);
	if (attrs)
		(void)apply_workqueue_attrs(wq, attrs);
	free_workqueue_attrs(attrs);
	drain_workqueue(wq);
	destroy_workqueue(wq);
}

static void walk(void)
{
	static const unsigned int flags[] = { WQ_UNBOUND, WQ_PERCPU, WQ_UNBOUND | WQ_MEM_RECLAIM, WQ_HIGHPRI };
	struct workqueue_struct *ordered;
	struct srcu_struct domain;
	struct rcu_head head;
	struct callback_head task_work;
	struct task_struct *task;
	long *data;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct workqueue_struct *wq = alloc_workqueue("walk", flags[i], 2);

		if (wq)
			use(wq);
	}
	ordered = alloc_ordered_workqueue("walk", 0);
	if (ordered)
		use(ordered);
	(void)schedule_on_each_cpu(count);
	rcu_read_lock();
	rcu_read_unlock();
	synchronize_rcu();
	call_rcu(&head, call);
	rcu_barrier();
	if (init_srcu_struct(&domain) == 0) {
		srcu_read_unlock(&domain, srcu_read_lock(&domain));
		synchronize_srcu(&domain);
		call_srcu(&domain, &head, call);
		srcu_barrier(&domain);
		cleanup_srcu_struct(&domain);
	}
	data = alloc_percpu(long);
	if (data)
		this_cpu_inc(data);
	free_percpu(data);
	task = get_current();
	init_task_work(&task_work, call_task);
	if (task && task_work_add(task, &task_work, TWA_NONE) == 0)
		task_work_run();
}

int main(void)
{
	long memory = 0, threads = 0;

	walk_in_child("the walk", walk, 0, 0, false);
	wait_for_walks(&memory, &threads);
	printf("%ld allocations, %ld threads: ", memory, threads);
	for (long nth = 1; nth <= memory && nth <= 1000; nth++)
		walk_in_child("the walk", walk, nth, 0, false);
	for (long nth = 1; nth <= threads; nth++) {
		walk_in_child("the walk", walk, 0, nth, false);
		walk_in_child("the walk", walk, 0, nth, true);
	}
	return report_walks() || memory < 1000 || threads < 4;
}
