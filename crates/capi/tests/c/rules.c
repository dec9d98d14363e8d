/* Tests the rules of docs/conformance.md that C can observe. The table there names each case. */
#include "check.h"

#include <afterwork/percpu.h>
#include <afterwork/rcupdate.h>
#include <afterwork/workqueue.h>

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/resource.h>

/* An item that counts its runs, and its parameters. */
struct counted {
	struct delayed_work dwork;
	int nr_runs, inside, nr_overlaps;
	/* The run queues the item again on the queue `on`, `nr_again` times. */
	struct workqueue_struct *on;
	int nr_again;
	struct counted *next;
	sem_t *started, *go;
	int number;
	long value, seen;
};

static struct counted *counted_of(struct work_struct *work)
{
	return container_of(to_delayed_work(work), struct counted, dwork);
}

static int runs_of(struct counted *it)
{
	return __atomic_load_n(&it->nr_runs, __ATOMIC_RELAXED);
}

static void run(struct work_struct *work)
{
	struct counted *it = counted_of(work);

	if (__atomic_fetch_add(&it->inside, 1, __ATOMIC_RELAXED) != 0)
		__atomic_fetch_add(&it->nr_overlaps, 1, __ATOMIC_RELAXED);
	if (it->started)
		sem_post(it->started);
	if (it->go)
		gate_wait(it->go);
	it->seen = it->value;
	__atomic_fetch_add(&it->nr_runs, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&it->inside, 1, __ATOMIC_RELAXED);
}

static void init(struct counted *it, work_func_t func)
{
	memset(it, 0, sizeof(*it));
	INIT_DELAYED_WORK(&it->dwork, func);
}

#define WORK(it) (&(it)->dwork.work)

/* A queue whose only item blocks until it is released. */
struct stuck {
	struct workqueue_struct *wq;
	struct counted plug;
	sem_t started, go;
};

static void stick_in(struct stuck *stuck, struct workqueue_struct *wq)
{
	stuck->wq = wq;
	init(&stuck->plug, run);
	gate_init(&stuck->started);
	gate_init(&stuck->go);
	stuck->plug.started = &stuck->started;
	stuck->plug.go = &stuck->go;
	CHECK(queue_work(stuck->wq, WORK(&stuck->plug)));
	gate_wait(&stuck->started);
}

static void stick(struct stuck *stuck)
{
	stick_in(stuck, alloc_ordered_workqueue("stuck", 0));
}

static void let_go(struct stuck *stuck)
{
	sem_post(&stuck->go);
	flush_work(WORK(&stuck->plug));
}

static void end(struct stuck *stuck)
{
	let_go(stuck);
	destroy_workqueue(stuck->wq);
}

#define NR_THREADS 4

static void in_threads(void *(*body)(void *), void *data)
{
	pthread_t threads[NR_THREADS];

	for (int i = 0; i < NR_THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, body, data) == 0);
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
}

/* ---- items ---- */

struct shared {
	struct workqueue_struct *queues[2];
	struct counted it;
	int nr_queued, nr_cancelled;
};

static void *queue_often(void *data)
{
	struct shared *shared = data;

	for (int i = 0; i < 400; i++)
		if (queue_work(shared->queues[i % 2], WORK(&shared->it)))
			__atomic_fetch_add(&shared->nr_queued, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void each_run_was_queued(struct workqueue_struct *one, struct workqueue_struct *other)
{
	struct shared shared = { .queues = { one, other } };

	init(&shared.it, run);
	in_threads(queue_often, &shared);
	while (flush_work(WORK(&shared.it)))
		;
	CHECK_EQ(shared.it.nr_runs, shared.nr_queued);
	CHECK_EQ(shared.it.nr_overlaps, 0);
	destroy_workqueue(one);
	if (other != one)
		destroy_workqueue(other);
}

static void each_successful_queueing_causes_one_run(void)
{
	struct workqueue_struct *wq = alloc_workqueue("one", WQ_UNBOUND, 8);

	each_run_was_queued(wq, wq);
}

static void item_of_alternating_queues_does_not_overlap(void)
{
	each_run_was_queued(alloc_workqueue("one", WQ_UNBOUND, 8), alloc_workqueue("other", 0, 8));
}

static void item_of_an_ordered_and_another_queue_does_not_overlap(void)
{
	each_run_was_queued(alloc_ordered_workqueue("one", 0), alloc_workqueue("other", WQ_UNBOUND, 8));
}

static void writes_before_a_rejected_queueing_are_seen(void)
{
	struct stuck stuck;
	struct counted it;

	stick(&stuck);
	init(&it, run);
	CHECK(queue_work(stuck.wq, WORK(&it)));
	it.value = 17;
	CHECK(!queue_work(stuck.wq, WORK(&it)));
	let_go(&stuck);
	flush_work(WORK(&it));
	CHECK(it.seen == 17 && it.nr_runs == 1);
	destroy_workqueue(stuck.wq);
}

static void queue_next(struct work_struct *work)
{
	struct counted *it = counted_of(work);

	if (it->next)
		CHECK(queue_work(it->on, WORK(it->next)));
	__atomic_fetch_add(&it->nr_runs, 1, __ATOMIC_RELAXED);
}

static void an_item_queues_others_on_other_queues(void)
{
	struct workqueue_struct *one = alloc_workqueue("one", WQ_UNBOUND, 1), *other = alloc_ordered_workqueue("other", 0);
	struct counted first, second, third;

	init(&first, queue_next);
	init(&second, queue_next);
	init(&third, queue_next);
	first.next = &second;
	first.on = other;
	second.next = &third;
	second.on = system_wq;
	queue_work(one, WORK(&first));
	destroy_workqueue(one);
	destroy_workqueue(other);
	flush_work(WORK(&third));
	CHECK_EQ(third.nr_runs, 1);
}

static void item_cancelled_on_a_stuck_queue_runs_from_another(void)
{
	struct stuck stuck;
	struct counted it;

	stick(&stuck);
	init(&it, run);
	CHECK(queue_work(stuck.wq, WORK(&it)));
	CHECK(cancel_work(WORK(&it)));
	CHECK(queue_work(system_unbound_wq, WORK(&it)));
	flush_work(WORK(&it));
	CHECK_EQ(it.nr_runs, 1);
	end(&stuck);
	CHECK_EQ(it.nr_runs, 1);
}

/* ---- placement ---- */

static void missing_cpu_is_replaced_by_an_existing_one(void)
{
	struct workqueue_struct *wq = alloc_workqueue("cpus", 0, 0);
	struct counted it;

	init(&it, run);
	for (int i = 0; i < 3; i++) {
		CHECK(queue_work_on((int[]){ 1000, 1 << 20, -7 }[i], wq, WORK(&it)));
		flush_work(WORK(&it));
	}
	CHECK_EQ(it.nr_runs, 3);
	destroy_workqueue(wq);
}

static void a_pending_item_stays_on_its_queue(void)
{
	struct stuck stuck;
	struct counted it;

	stick(&stuck);
	init(&it, run);
	CHECK(queue_work(stuck.wq, WORK(&it)));
	CHECK(!queue_work(system_unbound_wq, WORK(&it)));
	CHECK_EQ(runs_of(&it), 0);
	let_go(&stuck);
	flush_workqueue(stuck.wq);
	CHECK_EQ(it.nr_runs, 1);
	destroy_workqueue(stuck.wq);
}

static int nr_threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	int nr = 0;

	while (folder && readdir(folder))
		nr++;
	if (folder)
		closedir(folder);
	return nr;
}

static void a_queue_that_is_not_used_costs_no_thread(void)
{
	struct workqueue_struct *queues[100];
	struct counted it;
	int before;

	/* Create everything that all queues share. */
	init(&it, run);
	schedule_work(WORK(&it));
	flush_work(WORK(&it));
	before = nr_threads();
	for (int i = 0; i < 100; i++)
		queues[i] = alloc_workqueue("unused-%d", i % 2 ? WQ_UNBOUND : 0, 0, i);
	CHECK(nr_threads() < before + 50);
	for (int i = 0; i < 100; i++)
		destroy_workqueue(queues[i]);
}

/* ---- limits ---- */

static pthread_barrier_t meeting;

static void meet(struct work_struct *work)
{
	pthread_barrier_wait(&meeting);
	run(work);
}

static void concurrent_items_reach_the_limit(void)
{
	struct workqueue_struct *wq = alloc_workqueue("four", WQ_UNBOUND, 4);
	struct counted items[4];

	pthread_barrier_init(&meeting, NULL, 4);
	for (int i = 0; i < 4; i++) {
		init(&items[i], meet);
		queue_work(wq, WORK(&items[i]));
	}
	destroy_workqueue(wq);
	pthread_barrier_destroy(&meeting);
}

static void a_raised_limit_lets_items_start(void)
{
	struct workqueue_struct *wq = alloc_workqueue("raised", WQ_UNBOUND, 1);
	struct counted items[2];

	pthread_barrier_init(&meeting, NULL, 2);
	for (int i = 0; i < 2; i++) {
		init(&items[i], meet);
		queue_work(wq, WORK(&items[i]));
	}
	CHECK_EQ(workqueue_set_max_active(wq, 2), 0);
	destroy_workqueue(wq);
	pthread_barrier_destroy(&meeting);
}

static void limit_may_change_while_items_are_queued_and_run(void)
{
	struct workqueue_struct *wq = alloc_workqueue("changed", WQ_UNBOUND, 8);
	struct counted items[60];

	for (int i = 0; i < 60; i++) {
		init(&items[i], run);
		CHECK_EQ(workqueue_set_max_active(wq, 1 + i % 8), 0);
		CHECK(queue_work(wq, WORK(&items[i])));
	}
	destroy_workqueue(wq);
	for (int i = 0; i < 60; i++)
		CHECK_EQ(items[i].nr_runs, 1);
}

static int nr_inside, most_inside;

static void count_inside(struct work_struct *work)
{
	int nr = __atomic_add_fetch(&nr_inside, 1, __ATOMIC_SEQ_CST), most = __atomic_load_n(&most_inside, __ATOMIC_RELAXED);

	while (nr > most && !__atomic_compare_exchange_n(&most_inside, &most, nr, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	sched_yield();
	run(work);
	__atomic_fetch_sub(&nr_inside, 1, __ATOMIC_SEQ_CST);
}

static void queue_counted(struct workqueue_struct *wq, struct counted *items, int nr)
{
	unsigned int nr_cpus = nr_cpu_ids;

	for (int i = 0; i < nr; i++) {
		init(&items[i], count_inside);
		queue_work_on(i % (int)nr_cpus, wq, WORK(&items[i]));
	}
	flush_workqueue(wq);
}

static void after_a_limit_is_lowered_no_item_starts_above_it(void)
{
	struct workqueue_struct *wq = alloc_workqueue("lowered", WQ_UNBOUND, 8);
	struct counted items[40];

	queue_counted(wq, items, 40);
	CHECK_EQ(workqueue_set_max_active(wq, 1), 0);
	most_inside = 0;
	queue_counted(wq, items, 40);
	CHECK_EQ(most_inside, 1);
	destroy_workqueue(wq);
}

static void a_limit_of_an_unbound_queue_holds_over_all_cpus(void)
{
	struct workqueue_struct *wq = alloc_workqueue("all-cpus", WQ_UNBOUND, 1);
	struct counted items[40];

	most_inside = 0;
	queue_counted(wq, items, 40);
	CHECK_EQ(most_inside, 1);
	destroy_workqueue(wq);
}

static void a_limit_of_a_per_cpu_queue_is_for_each_cpu(void)
{
	struct workqueue_struct *wq = alloc_workqueue("each-cpu", 0, 1);
	struct counted items[40];
	int nr_cpus = (int)nr_cpu_ids;

	most_inside = 0;
	queue_counted(wq, items, 40);
	CHECK(most_inside <= nr_cpus);
	/* On one of the queues, at most one item runs at a time. */
	most_inside = 0;
	for (int i = 0; i < 40; i++)
		CHECK(queue_work_on(0, wq, WORK(&items[i])));
	flush_workqueue(wq);
	CHECK_EQ(most_inside, 1);
	destroy_workqueue(wq);
}

static void queues_have_limits_of_their_own(void)
{
	struct stuck stuck;
	struct workqueue_struct *wq = alloc_workqueue("beside", WQ_UNBOUND, 1);
	struct counted it;

	stick(&stuck);
	init(&it, run);
	queue_work(wq, WORK(&it));
	destroy_workqueue(wq);
	CHECK_EQ(it.nr_runs, 1);
	end(&stuck);
}

/* ---- order, and attributes that change ---- */

static int order[128], nr_in_order;

static void note_order(struct work_struct *work)
{
	order[nr_in_order++] = counted_of(work)->number;
}

/* Checks that NR items ran, in increasing order of their numbers. */
static void check_order(int nr)
{
	CHECK_EQ(nr_in_order, nr);
	for (int i = 1; i < nr_in_order; i++)
		CHECK(order[i - 1] < order[i]);
	nr_in_order = 0;
}

static void init_numbered(struct counted *items, int nr)
{
	for (int i = 0; i < nr; i++) {
		init(&items[i], note_order);
		items[i].number = i;
	}
}

static void item_queued_again_after_a_cancel_is_last(void)
{
	struct counted items[3];
	struct stuck stuck;

	stick(&stuck);
	init_numbered(items, 3);
	for (int i = 0; i < 3; i++)
		queue_work(stuck.wq, WORK(&items[i]));
	CHECK(cancel_work(WORK(&items[0])));
	items[0].number = 3;
	CHECK(queue_work(stuck.wq, WORK(&items[0])));
	end(&stuck);
	check_order(3);
}

static void ordered_queue_keeps_its_order_during_cancels(void)
{
	struct counted items[60];
	struct stuck stuck;
	int nr_cancelled = 0;

	stick(&stuck);
	init_numbered(items, 60);
	for (int i = 0; i < 60; i++)
		queue_work(stuck.wq, WORK(&items[i]));
	sem_post(&stuck.go);
	/* Cancel items from the end while the queue runs. */
	for (int i = 59; i >= 0; i -= 3)
		nr_cancelled += cancel_work(WORK(&items[i]));
	destroy_workqueue(stuck.wq);
	check_order(60 - nr_cancelled);
}

static void items_of_one_producer_run_in_order_on_a_strict_cpu(void)
{
	struct workqueue_struct *wq = alloc_workqueue("one-cpu", 0, 1);
	struct counted items[60];

	init_numbered(items, 60);
	for (int i = 0; i < 60; i++)
		queue_work_on(0, wq, WORK(&items[i]));
	destroy_workqueue(wq);
	check_order(60);
}

struct producers {
	struct workqueue_struct *wq;
	int nr_producers;
	struct counted items[NR_THREADS][20];
};

static void *produce(void *data)
{
	struct producers *all = data;
	int who = __atomic_fetch_add(&all->nr_producers, 1, __ATOMIC_RELAXED);

	for (int i = 0; i < 20; i++) {
		init(&all->items[who][i], note_order);
		all->items[who][i].number = who * 20 + i;
		CHECK(queue_work(all->wq, WORK(&all->items[who][i])));
	}
	return NULL;
}

static void an_ordered_queue_keeps_the_order_of_each_of_many_producers(void)
{
	struct producers *all = calloc(1, sizeof(*all));
	int next[NR_THREADS] = { 0 };

	all->wq = alloc_ordered_workqueue("producers", 0);
	in_threads(produce, all);
	destroy_workqueue(all->wq);
	CHECK_EQ(nr_in_order, NR_THREADS * 20);
	for (int i = 0; i < nr_in_order; i++)
		CHECK_EQ(order[i] % 20, next[order[i] / 20]++);
	nr_in_order = 0;
	free(all);
}

static void apply_to(struct workqueue_struct *wq, int nice)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();

	cpumask_setall(attrs->cpumask);
	attrs->nice = nice;
	CHECK_EQ(apply_workqueue_attrs(wq, attrs), 0);
	free_workqueue_attrs(attrs);
}

static void see_nice(struct work_struct *work)
{
	/* On Linux this is the nice value of the calling thread. */
	counted_of(work)->seen = getpriority(PRIO_PROCESS, 0);
	sem_post(counted_of(work)->started);
}

static void new_items_have_the_nice_value_of_new_attributes(void)
{
	struct workqueue_struct *wq = alloc_workqueue("nice", WQ_UNBOUND, 0);
	struct counted it;
	sem_t started;

	gate_init(&started);
	init(&it, see_nice);
	it.started = &started;
	for (int nice = 17; nice < 20; nice++) {
		apply_to(wq, nice);
		CHECK(queue_work(wq, WORK(&it)));
		/* Wait before the flush, because the flush might run the item on this thread. */
		gate_wait(&started);
		flush_work(WORK(&it));
		CHECK(it.seen == nice || (may_be_rescued && it.seen == getpriority(PRIO_PROCESS, 0)));
	}
	destroy_workqueue(wq);
}

/* Queues an item of WQ that blocks until it is released, and then changes the attributes of WQ. */
static void stick_and_change(struct stuck *stuck, struct workqueue_struct *wq)
{
	stick_in(stuck, wq);
	apply_to(wq, 19);
}

static void new_items_do_not_wait_for_those_of_former_attributes(void)
{
	struct stuck stuck;
	struct counted it;
	sem_t started;

	stick_and_change(&stuck, alloc_workqueue("former", WQ_UNBOUND, 8));
	gate_init(&started);
	init(&it, run);
	it.started = &started;
	CHECK(queue_work(stuck.wq, WORK(&it)));
	gate_wait(&started);
	flush_work(WORK(&it));
	CHECK(it.nr_runs == 1 && runs_of(&stuck.plug) == 0);
	end(&stuck);
}

static void a_drain_waits_for_items_of_former_attributes(void)
{
	struct stuck stuck;

	stick_and_change(&stuck, alloc_workqueue("former", WQ_UNBOUND, 8));
	sem_post(&stuck.go);
	drain_workqueue(stuck.wq);
	CHECK_EQ(stuck.plug.nr_runs, 1);
	destroy_workqueue(stuck.wq);
}

static void change_attributes(struct workqueue_struct *wq, struct counted *items, int nr)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();

	for (int i = 0; i < nr; i++) {
		if (i % 4 == 0) {
			/* The current CPU, or all CPUs. */
			cpumask_setall(attrs->cpumask);
			if (i % 8) {
				cpumask_clear(attrs->cpumask);
				cpumask_set_cpu(raw_smp_processor_id(), attrs->cpumask);
			}
			CHECK_EQ(apply_workqueue_attrs(wq, attrs), 0);
		}
		CHECK(queue_work(wq, WORK(&items[i])));
	}
	free_workqueue_attrs(attrs);
	destroy_workqueue(wq);
}

static void nothing_is_lost_while_attributes_change(void)
{
	struct counted items[60];
	long sum = 0;

	for (int i = 0; i < 60; i++)
		init(&items[i], run);
	change_attributes(alloc_workqueue("changes", WQ_UNBOUND, 8), items, 60);
	for (int i = 0; i < 60; i++)
		sum += items[i].nr_runs;
	CHECK_EQ(sum, 60);
}

static void an_ordered_queue_keeps_its_order_as_its_attributes_change(void)
{
	struct counted items[60];

	init_numbered(items, 60);
	change_attributes(alloc_ordered_workqueue("changes", 0), items, 60);
	check_order(60);
}

static void *change_while_stuck(void *data)
{
	struct stuck *stuck = data;

	apply_to(stuck->wq, 18);
	CHECK_EQ(stuck->plug.nr_runs, 1);
	return NULL;
}

static void a_change_of_an_ordered_queue_waits_for_its_items(void)
{
	struct stuck stuck;
	pthread_t thread;

	stick_in(&stuck, alloc_ordered_workqueue("change", 0));
	CHECK(pthread_create(&thread, NULL, change_while_stuck, &stuck) == 0);
	for (int i = 0; i < 200; i++)
		sched_yield();
	CHECK_EQ(runs_of(&stuck.plug), 0);
	sem_post(&stuck.go);
	pthread_join(thread, NULL);
	destroy_workqueue(stuck.wq);
}

static void change_own_queue(struct work_struct *work)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();

	if (!attrs)
		return;
	cpumask_setall(attrs->cpumask);
	attrs->nice = 19;
	CHECK_EQ(apply_workqueue_attrs(counted_of(work)->on, attrs), -EBUSY);
	free_workqueue_attrs(attrs);
}

static void an_item_that_changes_its_own_ordered_queue_gets_ebusy(void)
{
	struct counted it;

	init(&it, change_own_queue);
	it.on = alloc_ordered_workqueue("own", 0);
	CHECK(queue_work(it.on, WORK(&it)));
	destroy_workqueue(it.on);
}

/* ---- flush and drain ---- */

static void run_again(struct work_struct *work)
{
	struct counted *it = counted_of(work);

	__atomic_fetch_add(&it->nr_runs, 1, __ATOMIC_RELAXED);
	if (__atomic_load_n(&it->nr_again, __ATOMIC_RELAXED) == 0)
		return;
	if (it->nr_again > 0)
		it->nr_again--;
	CHECK(queue_work(it->on, work));
}

static void a_flush_waits_for_the_run_and_the_one_behind_it(void)
{
	struct stuck stuck;

	stick(&stuck);
	CHECK(queue_work(stuck.wq, WORK(&stuck.plug)));
	CHECK_EQ(work_busy(WORK(&stuck.plug)), WORK_BUSY_PENDING | WORK_BUSY_RUNNING);
	sem_post(&stuck.go);
	sem_post(&stuck.go);
	flush_work(WORK(&stuck.plug));
	CHECK_EQ(stuck.plug.nr_runs, 2);
	destroy_workqueue(stuck.wq);
}

/* An item that queues itself again forever. */
static void begin_for_ever(struct counted *it)
{
	init(it, run_again);
	it->on = alloc_workqueue("for-ever", WQ_UNBOUND, 2);
	it->nr_again = -1;
	CHECK(queue_work(it->on, WORK(it)));
}

static void end_for_ever(struct counted *it)
{
	__atomic_store_n(&it->nr_again, 0, __ATOMIC_RELAXED);
	destroy_workqueue(it->on);
}

static void a_flush_does_not_wait_for_runs_that_are_queued_later(void)
{
	struct counted it;

	begin_for_ever(&it);
	for (int i = 0; i < 10; i++)
		flush_work(WORK(&it));
	CHECK(runs_of(&it) > 0);
	end_for_ever(&it);
}

static void stream_of_new_items_delays_no_flush_of_the_queue(void)
{
	struct counted it;

	begin_for_ever(&it);
	for (int i = 0; i < 10; i++)
		flush_workqueue(it.on);
	CHECK(runs_of(&it) > 0);
	end_for_ever(&it);
}

static void a_flush_of_an_empty_queue_returns(void)
{
	struct workqueue_struct *wq = alloc_workqueue("empty", 0, 0);

	flush_workqueue(wq);
	drain_workqueue(wq);
	destroy_workqueue(wq);
}

static void *flush_stuck(void *data)
{
	flush_workqueue(((struct stuck *)data)->wq);
	CHECK_EQ(((struct stuck *)data)->plug.nr_runs, 1);
	return NULL;
}

static void many_flushes_of_a_queue_all_end(void)
{
	pthread_t threads[20];
	struct stuck stuck;

	stick(&stuck);
	for (int i = 0; i < 20; i++)
		CHECK(pthread_create(&threads[i], NULL, flush_stuck, &stuck) == 0);
	sem_post(&stuck.go);
	for (int i = 0; i < 20; i++)
		pthread_join(threads[i], NULL);
	destroy_workqueue(stuck.wq);
}

static void a_flush_of_a_queue_waits_for_items_over_the_limit(void)
{
	struct counted items[20];
	struct stuck stuck;

	stick(&stuck);
	for (int i = 0; i < 20; i++) {
		init(&items[i], run);
		CHECK(queue_work(stuck.wq, WORK(&items[i])));
	}
	sem_post(&stuck.go);
	flush_workqueue(stuck.wq);
	for (int i = 0; i < 20; i++)
		CHECK_EQ(items[i].nr_runs, 1);
	destroy_workqueue(stuck.wq);
}

static void a_flush_of_a_queue_waits_for_an_item_that_was_queued_again(void)
{
	struct stuck stuck;

	stick(&stuck);
	CHECK(queue_work(stuck.wq, WORK(&stuck.plug)));
	sem_post(&stuck.go);
	sem_post(&stuck.go);
	flush_workqueue(stuck.wq);
	CHECK_EQ(stuck.plug.nr_runs, 2);
	destroy_workqueue(stuck.wq);
}

static void a_flush_waits_for_the_run_though_the_later_one_is_cancelled(void)
{
	struct stuck stuck;

	stick(&stuck);
	CHECK(queue_work(stuck.wq, WORK(&stuck.plug)));
	CHECK(cancel_work(WORK(&stuck.plug)));
	sem_post(&stuck.go);
	flush_work(WORK(&stuck.plug));
	CHECK_EQ(stuck.plug.nr_runs, 1);
	destroy_workqueue(stuck.wq);
}

static void *flush_plug(void *data)
{
	flush_work(WORK(&((struct stuck *)data)->plug));
	CHECK_EQ(((struct stuck *)data)->plug.nr_runs, 1);
	return NULL;
}

static void flush_of_a_running_and_pending_item_ends_with_the_cancel(void)
{
	struct stuck stuck;
	pthread_t thread;

	stick(&stuck);
	CHECK(queue_work(stuck.wq, WORK(&stuck.plug)));
	CHECK(pthread_create(&thread, NULL, flush_plug, &stuck) == 0);
	for (int i = 0; i < 200; i++)
		sched_yield();
	CHECK(cancel_work(WORK(&stuck.plug)));
	sem_post(&stuck.go);
	pthread_join(thread, NULL);
	destroy_workqueue(stuck.wq);
}

static void cancelled_item_delays_no_flush(void)
{
	struct stuck stuck;
	struct counted it;

	stick(&stuck);
	init(&it, run);
	queue_work(stuck.wq, WORK(&it));
	CHECK(cancel_work_sync(WORK(&it)));
	let_go(&stuck);
	flush_workqueue(stuck.wq);
	CHECK_EQ(it.nr_runs, 0);
	destroy_workqueue(stuck.wq);
}

static void drain_waits_for_items_queued_by_items(void)
{
	struct counted it;

	init(&it, run_again);
	it.on = alloc_workqueue("drained", WQ_UNBOUND, 1);
	it.nr_again = 50;
	queue_work(it.on, WORK(&it));
	drain_workqueue(it.on);
	CHECK_EQ(it.nr_runs, 51);
	destroy_workqueue(it.on);
}

static void *drain_stuck(void *data)
{
	drain_workqueue(((struct stuck *)data)->wq);
	CHECK_EQ(((struct stuck *)data)->plug.nr_runs, 1);
	return NULL;
}

static void drain_rejects_items_of_other_threads(void)
{
	struct stuck stuck;
	struct counted it;
	pthread_t drainer;
	int nr_queued = 0;

	stick(&stuck);
	init(&it, run);
	CHECK(pthread_create(&drainer, NULL, drain_stuck, &stuck) == 0);
	/* Retry until the queue is being drained. Earlier items are cancelled. */
	while (queue_work(stuck.wq, WORK(&it)) && ++nr_queued) {
		cancel_work_sync(WORK(&it));
		sched_yield();
	}
	CHECK_EQ(work_busy(WORK(&it)), 0);
	let_go(&stuck);
	pthread_join(drainer, NULL);
	CHECK_EQ(it.nr_runs, 0);
	CHECK(queue_work(stuck.wq, WORK(&it)));
	destroy_workqueue(stuck.wq);
	CHECK_EQ(it.nr_runs, 1);
}

static void many_drains_of_a_queue_all_end(void)
{
	pthread_t threads[8];
	struct stuck stuck;

	stick(&stuck);
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, drain_stuck, &stuck) == 0);
	sem_post(&stuck.go);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(stuck.plug.nr_runs, 1);
	destroy_workqueue(stuck.wq);
}

static void flush_and_cancel_next(struct work_struct *work)
{
	struct counted *it = counted_of(work);

	queue_work(it->on, WORK(it->next));
	flush_workqueue(it->on);
	CHECK_EQ(it->next->nr_runs, 1);
	queue_delayed_work(it->on, &it->next->dwork, 1000 * HZ);
	CHECK(cancel_delayed_work_sync(&it->next->dwork));
	drain_workqueue(it->on);
}

static void item_flushes_drains_and_cancels_items_of_others(void)
{
	struct workqueue_struct *wq = alloc_workqueue("waits", WQ_UNBOUND, 1);
	struct counted it, other;

	init(&it, flush_and_cancel_next);
	init(&other, run);
	it.next = &other;
	it.on = alloc_workqueue("others", WQ_UNBOUND, 1);
	queue_work(wq, WORK(&it));
	destroy_workqueue(wq);
	destroy_workqueue(it.on);
	CHECK_EQ(other.nr_runs, 1);
}

static void wait_for_next(struct work_struct *work)
{
	struct counted *it = counted_of(work);

	if (it->next) {
		queue_work(it->on, WORK(it->next));
		flush_work(WORK(it->next));
		CHECK_EQ(it->next->nr_runs, 1);
	}
	it->nr_runs++;
}

static void a_chain_of_items_that_wait_for_the_next_ends(void)
{
	struct workqueue_struct *wq = alloc_workqueue("chain", WQ_UNBOUND, 0);
	struct counted items[40];

	for (int i = 0; i < 40; i++) {
		init(&items[i], wait_for_next);
		items[i].on = wq;
		items[i].next = i + 1 < 40 ? &items[i + 1] : NULL;
	}
	queue_work(wq, WORK(&items[0]));
	destroy_workqueue(wq);
	CHECK_EQ(items[0].nr_runs, 1);
}

static void items_of_two_queues_with_rescuers_wait_for_each_other(void)
{
	struct workqueue_struct *queues[2];
	struct counted items[20];

	for (int i = 0; i < 2; i++)
		queues[i] = alloc_workqueue("reclaim-%d", WQ_UNBOUND | WQ_MEM_RECLAIM, 0, i);
	for (int i = 0; i < 20; i++) {
		init(&items[i], wait_for_next);
		items[i].on = queues[(i + 1) % 2];
		items[i].next = i + 1 < 20 ? &items[i + 1] : NULL;
	}
	queue_work(queues[0], WORK(&items[0]));
	flush_work(WORK(&items[0]));
	CHECK_EQ(items[0].nr_runs, 1);
	destroy_workqueue(queues[0]);
	destroy_workqueue(queues[1]);
}

/* ---- delayed items ---- */

static void many_timers_run_each_of_many_items_once(void)
{
	struct counted *items = calloc(300, sizeof(*items));
	struct workqueue_struct *wq = alloc_workqueue("timers", WQ_UNBOUND, 4);

	for (int i = 0; i < 300; i++) {
		init(&items[i], run);
		CHECK(queue_delayed_work(wq, &items[i].dwork, (unsigned long)(i * 7 % 5)));
	}
	for (int i = 0; i < 300; i++) {
		while (delayed_work_pending(&items[i].dwork))
			sched_yield();
		flush_work(WORK(&items[i]));
		CHECK_EQ(items[i].nr_runs, 1);
	}
	destroy_workqueue(wq);
	free(items);
}

static void mod_delayed_takes_a_queued_item_back_into_its_timer(void)
{
	struct stuck stuck;
	struct counted it;

	stick(&stuck);
	init(&it, run);
	CHECK(queue_delayed_work(stuck.wq, &it.dwork, 0));
	CHECK(mod_delayed_work(stuck.wq, &it.dwork, 1000 * HZ));
	let_go(&stuck);
	flush_workqueue(stuck.wq);
	CHECK_EQ(it.nr_runs, 0);
	CHECK(cancel_delayed_work_sync(&it.dwork));
	destroy_workqueue(stuck.wq);
}

static void *arm_often(void *data)
{
	struct shared *shared = data;

	for (int i = 0; i < 300; i++) {
		bool queued = false, cancelled = false;

		if (i % 5 == 4)
			cancelled = cancel_delayed_work(&shared->it.dwork);
		else if (i % 5 == 3)
			queued = !mod_delayed_work(shared->queues[0], &shared->it.dwork, (unsigned long)(i % 2));
		else
			queued = queue_delayed_work(shared->queues[0], &shared->it.dwork, (unsigned long)(i % 2));
		__atomic_fetch_add(&shared->nr_queued, queued, __ATOMIC_RELAXED);
		__atomic_fetch_add(&shared->nr_cancelled, cancelled, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void timers_changed_by_many_threads_fire_exactly_once(void)
{
	struct shared shared = { .queues = { alloc_workqueue("armed", WQ_UNBOUND, 4) } };

	init(&shared.it, run);
	in_threads(arm_often, &shared);
	while (flush_delayed_work(&shared.it.dwork))
		;
	CHECK_EQ(shared.it.nr_runs + shared.nr_cancelled, shared.nr_queued);
	CHECK_EQ(shared.it.nr_overlaps, 0);
	destroy_workqueue(shared.queues[0]);
}

/* ---- items that wait for readers ---- */

struct after_readers {
	struct rcu_work rwork;
	int nr_runs, nr_queued;
};

static void run_after_readers(struct work_struct *work)
{
	__atomic_fetch_add(&container_of(to_rcu_work(work), struct after_readers, rwork)->nr_runs, 1, __ATOMIC_RELAXED);
}

static void an_rcu_work_waits_for_the_sections_that_are_open(void)
{
	struct after_readers it = { .nr_runs = 0 };

	INIT_RCU_WORK(&it.rwork, run_after_readers);
	rcu_read_lock();
	CHECK(queue_rcu_work(system_unbound_wq, &it.rwork));
	for (int i = 0; i < 200; i++) {
		sched_yield();
		CHECK(__atomic_load_n(&it.nr_runs, __ATOMIC_RELAXED) == 0);
	}
	CHECK(work_pending(&it.rwork.work));
	CHECK(!queue_rcu_work(system_unbound_wq, &it.rwork));
	rcu_read_unlock();
	flush_rcu_work(&it.rwork);
	CHECK_EQ(it.nr_runs, 1);
}

static void *queue_after_readers(void *data)
{
	struct after_readers *it = data;

	for (int i = 0; i < 50; i++) {
		if (queue_rcu_work(system_unbound_wq, &it->rwork))
			__atomic_fetch_add(&it->nr_queued, 1, __ATOMIC_RELAXED);
		sched_yield();
	}
	return NULL;
}

static void rcu_works_of_many_threads_are_not_lost_and_not_doubled(void)
{
	struct after_readers it = { .nr_runs = 0 };

	INIT_RCU_WORK(&it.rwork, run_after_readers);
	in_threads(queue_after_readers, &it);
	flush_rcu_work(&it.rwork);
	CHECK_EQ(it.nr_runs, it.nr_queued);
}

static void run_after_readers_again(struct work_struct *work)
{
	struct after_readers *it = container_of(to_rcu_work(work), struct after_readers, rwork);

	if (++it->nr_runs < it->nr_queued)
		CHECK(queue_rcu_work(system_unbound_wq, &it->rwork));
}

static void an_rcu_work_may_queue_itself(void)
{
	struct after_readers it = { .nr_queued = 5 };

	INIT_RCU_WORK(&it.rwork, run_after_readers_again);
	CHECK(queue_rcu_work(system_unbound_wq, &it.rwork));
	while (flush_rcu_work(&it.rwork))
		;
	CHECK_EQ(it.nr_runs, 5);
}

static void an_rcu_work_that_waits_for_readers_is_not_cancelled(void)
{
	struct after_readers it = { .nr_runs = 0 };

	INIT_RCU_WORK(&it.rwork, run_after_readers);
	rcu_read_lock();
	CHECK(queue_rcu_work(system_unbound_wq, &it.rwork));
	CHECK(!cancel_work(&it.rwork.work));
	rcu_read_unlock();
	flush_rcu_work(&it.rwork);
	CHECK_EQ(it.nr_runs, 1);
}

/* ---- cancel and disable ---- */

static void *cancel_often(void *data)
{
	struct shared *shared = data;

	for (int i = 0; i < 400; i++) {
		bool queued = queue_work(shared->queues[0], WORK(&shared->it));
		bool cancelled = i % 3 == 0 ? cancel_work_sync(WORK(&shared->it)) : cancel_work(WORK(&shared->it));

		__atomic_fetch_add(&shared->nr_queued, queued, __ATOMIC_RELAXED);
		__atomic_fetch_add(&shared->nr_cancelled, cancelled, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void each_queueing_is_a_run_or_a_cancel(void)
{
	struct shared shared = { .queues = { alloc_workqueue("cancels", WQ_UNBOUND, 4) } };

	init(&shared.it, run);
	in_threads(cancel_often, &shared);
	flush_work(WORK(&shared.it));
	CHECK_EQ(shared.it.nr_runs + shared.nr_cancelled, shared.nr_queued);
	destroy_workqueue(shared.queues[0]);
}

static void an_item_that_runs_or_has_run_is_not_cancelled(void)
{
	struct stuck stuck;

	stick(&stuck);
	CHECK(!cancel_work(WORK(&stuck.plug)));
	let_go(&stuck);
	CHECK(!cancel_work(WORK(&stuck.plug)));
	CHECK_EQ(stuck.plug.nr_runs, 1);
	destroy_workqueue(stuck.wq);
}

static void queue_is_destroyed_while_an_item_cancelled_on_it_runs(void)
{
	struct stuck stuck;
	struct counted it;
	sem_t started, go;

	stick(&stuck);
	gate_init(&started);
	gate_init(&go);
	init(&it, run);
	it.started = &started;
	it.go = &go;
	CHECK(queue_work(stuck.wq, WORK(&it)));
	CHECK(cancel_work(WORK(&it)));
	CHECK(queue_work(system_unbound_wq, WORK(&it)));
	gate_wait(&started);
	end(&stuck);
	CHECK_EQ(runs_of(&it), 0);
	sem_post(&go);
	flush_work(WORK(&it));
	CHECK_EQ(it.nr_runs, 1);
}

static void nothing_runs_after_a_cancel_that_waits(void)
{
	struct counted it;
	int nr_runs;

	init(&it, run_again);
	it.on = system_unbound_wq;
	/* The cancellation rejects the requeue. It may also find that the item has been queued again. */
	it.nr_again = 0;
	for (int i = 0; i < 50; i++) {
		queue_work(it.on, WORK(&it));
		cancel_work_sync(WORK(&it));
		nr_runs = runs_of(&it);
		sched_yield();
		CHECK(work_busy(WORK(&it)) == 0 && !flush_work(WORK(&it)) && runs_of(&it) == nr_runs);
	}
}

static void a_cancel_that_waits_leaves_a_disabled_item_disabled(void)
{
	struct counted it;

	init(&it, run);
	CHECK(!disable_work(WORK(&it)));
	CHECK(!cancel_work_sync(WORK(&it)));
	CHECK(!schedule_work(WORK(&it)));
	CHECK(enable_work(WORK(&it)));
	CHECK(schedule_work(WORK(&it)));
	flush_work(WORK(&it));
	CHECK_EQ(it.nr_runs, 1);
}

static void disabling_cancels_and_does_not_end_the_current_run(void)
{
	struct stuck stuck;

	stick(&stuck);
	CHECK(queue_work(stuck.wq, WORK(&stuck.plug)));
	CHECK(disable_work(WORK(&stuck.plug)));
	CHECK_EQ(work_busy(WORK(&stuck.plug)), WORK_BUSY_RUNNING);
	sem_post(&stuck.go);
	CHECK(!disable_work_sync(WORK(&stuck.plug)));
	CHECK_EQ(stuck.plug.nr_runs, 1);
	CHECK_EQ(work_busy(WORK(&stuck.plug)), 0);
	CHECK(!enable_work(WORK(&stuck.plug)) && enable_work(WORK(&stuck.plug)));
	destroy_workqueue(stuck.wq);
}

static void disable_self(struct work_struct *work)
{
	CHECK(!disable_work(work));
	CHECK(!queue_work(system_unbound_wq, work));
	run(work);
}

static void an_item_may_disable_itself(void)
{
	struct counted it;

	init(&it, disable_self);
	schedule_work(WORK(&it));
	flush_work(WORK(&it));
	CHECK(enable_work(WORK(&it)));
	CHECK_EQ(it.nr_runs, 1);
}

/* ---- concurrency ---- */

static void post(struct work_struct *work)
{
	sem_post(counted_of(work)->go);
}

static void sleeping_items_are_woken_by_a_later_one(void)
{
	struct workqueue_struct *wq = alloc_workqueue("sleepers", 0, 0);
	struct counted sleepers[6], waker[6];
	sem_t gate;

	gate_init(&gate);
	for (int i = 0; i < 6; i++) {
		init(&sleepers[i], run);
		sleepers[i].go = &gate;
		/* The queue uses one CPU, whose workers all sleep unless more workers are started. */
		queue_work_on(0, wq, WORK(&sleepers[i]));
	}
	for (int i = 0; i < 6; i++) {
		init(&waker[i], post);
		waker[i].go = &gate;
		queue_work_on(0, wq, WORK(&waker[i]));
	}
	destroy_workqueue(wq);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(sleepers[i].nr_runs, 1);
}

static long wait_at_gate(void *gate)
{
	gate_wait(gate);
	return 17;
}

static void block(struct work_struct *work)
{
	CHECK_EQ(afterwork_blocking(wait_at_gate, counted_of(work)->started), 17);
}

static void another_item_runs_while_one_reports_that_it_sleeps(void)
{
	struct workqueue_struct *wq = alloc_workqueue("blocks", 0, 0);
	struct counted it, waker;
	sem_t gate;

	gate_init(&gate);
	init(&it, block);
	it.started = &gate;
	init(&waker, post);
	waker.go = &gate;
	queue_work_on(0, wq, WORK(&it));
	queue_work_on(0, wq, WORK(&waker));
	destroy_workqueue(wq);
}

static void spin_for_next(struct work_struct *work)
{
	struct counted *next = counted_of(work)->next;

	while (runs_of(next) == 0)
		;
}

static void spins_on(unsigned int flags)
{
	struct workqueue_struct *wq = alloc_workqueue("spins", flags, 0);
	struct counted it, next;

	init(&it, spin_for_next);
	init(&next, run);
	it.next = &next;
	queue_work_on(0, wq, WORK(&it));
	queue_work_on(0, wq, WORK(&next));
	destroy_workqueue(wq);
	CHECK_EQ(next.nr_runs, 1);
}

static void item_that_uses_the_cpu_does_not_delay_others(void)
{
	spins_on(0);
}

static void cpu_intensive_items_run_concurrently(void)
{
	spins_on(WQ_CPU_INTENSIVE);
}

static void bottom_halves_of_a_cpu_run_in_order(void)
{
	struct workqueue_struct *wq = alloc_workqueue("bh", WQ_BH, 0);
	struct counted items[60];

	init_numbered(items, 60);
	for (int i = 0; i < 60; i++)
		CHECK(queue_work_on(0, wq, WORK(&items[i])));
	flush_workqueue(wq);
	check_order(60);
	destroy_workqueue(wq);
}

static void a_queue_of_bottom_halves_is_of_no_other_kind(void)
{
	CHECK(!alloc_workqueue("bh", WQ_BH | WQ_UNBOUND, 0));
	CHECK(!alloc_workqueue("bh", WQ_BH | WQ_MEM_RECLAIM, 0));
	CHECK(!alloc_workqueue("bh", WQ_BH | WQ_CPU_INTENSIVE, 0));
	CHECK(!alloc_workqueue("bh", WQ_BH | WQ_FREEZABLE, 0));
	CHECK(!alloc_ordered_workqueue("bh", WQ_BH));
}

#define T(name) { #name, name }
const struct test rules_tests[] = {
	T(each_successful_queueing_causes_one_run),
	T(item_of_alternating_queues_does_not_overlap),
	T(item_of_an_ordered_and_another_queue_does_not_overlap),
	T(writes_before_a_rejected_queueing_are_seen),
	T(an_item_queues_others_on_other_queues),
	T(item_cancelled_on_a_stuck_queue_runs_from_another),
	T(missing_cpu_is_replaced_by_an_existing_one),
	T(a_pending_item_stays_on_its_queue),
	T(a_queue_that_is_not_used_costs_no_thread),
	T(concurrent_items_reach_the_limit),
	T(a_raised_limit_lets_items_start),
	T(limit_may_change_while_items_are_queued_and_run),
	T(after_a_limit_is_lowered_no_item_starts_above_it),
	T(a_limit_of_an_unbound_queue_holds_over_all_cpus),
	T(a_limit_of_a_per_cpu_queue_is_for_each_cpu),
	T(queues_have_limits_of_their_own),
	T(item_queued_again_after_a_cancel_is_last),
	T(ordered_queue_keeps_its_order_during_cancels),
	T(items_of_one_producer_run_in_order_on_a_strict_cpu),
	T(an_ordered_queue_keeps_the_order_of_each_of_many_producers),
	T(new_items_have_the_nice_value_of_new_attributes),
	T(new_items_do_not_wait_for_those_of_former_attributes),
	T(a_drain_waits_for_items_of_former_attributes),
	T(nothing_is_lost_while_attributes_change),
	T(an_ordered_queue_keeps_its_order_as_its_attributes_change),
	T(a_change_of_an_ordered_queue_waits_for_its_items),
	T(an_item_that_changes_its_own_ordered_queue_gets_ebusy),
	T(a_flush_waits_for_the_run_and_the_one_behind_it),
	T(a_flush_does_not_wait_for_runs_that_are_queued_later),
	T(stream_of_new_items_delays_no_flush_of_the_queue),
	T(a_flush_of_an_empty_queue_returns),
	T(many_flushes_of_a_queue_all_end),
	T(a_flush_of_a_queue_waits_for_items_over_the_limit),
	T(a_flush_of_a_queue_waits_for_an_item_that_was_queued_again),
	T(a_flush_waits_for_the_run_though_the_later_one_is_cancelled),
	T(flush_of_a_running_and_pending_item_ends_with_the_cancel),
	T(cancelled_item_delays_no_flush),
	T(drain_waits_for_items_queued_by_items),
	T(drain_rejects_items_of_other_threads),
	T(many_drains_of_a_queue_all_end),
	T(item_flushes_drains_and_cancels_items_of_others),
	T(a_chain_of_items_that_wait_for_the_next_ends),
	T(items_of_two_queues_with_rescuers_wait_for_each_other),
	T(many_timers_run_each_of_many_items_once),
	T(mod_delayed_takes_a_queued_item_back_into_its_timer),
	T(timers_changed_by_many_threads_fire_exactly_once),
	T(an_rcu_work_waits_for_the_sections_that_are_open),
	T(rcu_works_of_many_threads_are_not_lost_and_not_doubled),
	T(an_rcu_work_may_queue_itself),
	T(an_rcu_work_that_waits_for_readers_is_not_cancelled),
	T(each_queueing_is_a_run_or_a_cancel),
	T(an_item_that_runs_or_has_run_is_not_cancelled),
	T(queue_is_destroyed_while_an_item_cancelled_on_it_runs),
	T(nothing_runs_after_a_cancel_that_waits),
	T(a_cancel_that_waits_leaves_a_disabled_item_disabled),
	T(disabling_cancels_and_does_not_end_the_current_run),
	T(an_item_may_disable_itself),
	T(sleeping_items_are_woken_by_a_later_one),
	T(another_item_runs_while_one_reports_that_it_sleeps),
	T(item_that_uses_the_cpu_does_not_delay_others),
	T(cpu_intensive_items_run_concurrently),
	T(bottom_halves_of_a_cpu_run_in_order),
	T(a_queue_of_bottom_halves_is_of_no_other_kind),
	{ NULL, NULL },
};
