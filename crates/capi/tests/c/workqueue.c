/* Tests queues and items. */
#include "check.h"

#include <afterwork/workqueue.h>

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A structure that contains an item at some offset, as users' structures do. */
struct job {
	char before[3];
	struct work_struct work;
	int nr_runs;
	int inside;
	int overlaps;
	sem_t *started, *go;
	struct workqueue_struct *again_on;
	struct work_struct *other;
	long said;
};

static struct job *job_of(struct work_struct *work)
{
	return container_of(work, struct job, work);
}

static void count(struct work_struct *work)
{
	struct job *job = job_of(work);

	if (__atomic_fetch_add(&job->inside, 1, __ATOMIC_RELAXED) != 0)
		job->overlaps++;
	if (job->started)
		sem_post(job->started);
	if (job->go)
		gate_wait(job->go);
	__atomic_fetch_add(&job->nr_runs, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&job->inside, 1, __ATOMIC_RELAXED);
}

static void init_job(struct job *job, work_func_t func)
{
	memset(job, 0, sizeof(*job));
	INIT_WORK(&job->work, func);
}

/* A queue with one worker, and an item that blocks the queue until it is released. */
struct plugged {
	struct workqueue_struct *wq;
	struct job plug;
	sem_t started, go;
};

static void plug(struct plugged *p)
{
	p->wq = alloc_ordered_workqueue("plugged", 0);
	init_job(&p->plug, count);
	gate_init(&p->started);
	gate_init(&p->go);
	p->plug.started = &p->started;
	p->plug.go = &p->go;
	CHECK(queue_work(p->wq, &p->plug.work));
	gate_wait(&p->started);
}

static void unplug(struct plugged *p)
{
	sem_post(&p->go);
	flush_work(&p->plug.work);
}

static void unplug_and_destroy(struct plugged *p)
{
	unplug(p);
	destroy_workqueue(p->wq);
}

/* ---- making queues ---- */

static void each_flag_creates_a_queue_that_runs(void)
{
	const unsigned int flags[] = {
		0, WQ_UNBOUND, WQ_PERCPU, WQ_FREEZABLE, WQ_MEM_RECLAIM, WQ_HIGHPRI, WQ_CPU_INTENSIVE, WQ_SYSFS,
		WQ_POWER_EFFICIENT, WQ_BH, WQ_UNBOUND | WQ_HIGHPRI, WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_FREEZABLE,
		WQ_BH | WQ_HIGHPRI,
	};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct workqueue_struct *wq = alloc_workqueue("flag-%zu", flags[i], 0, i);
		struct job job;

		CHECK(wq);
		if (!wq) {
			fprintf(stderr, "    flags %#x\n", flags[i]);
			continue;
		}
		init_job(&job, count);
		CHECK(queue_work(wq, &job.work));
		flush_work(&job.work);
		CHECK_EQ(job.nr_runs, 1);
		destroy_workqueue(wq);
	}
}

static void unknown_flags_are_rejected(void)
{
	CHECK(!alloc_workqueue("bad", 1u << 30, 0));
}

static void contradicting_flags_are_rejected(void)
{
	CHECK(!alloc_workqueue("bad", WQ_UNBOUND | WQ_PERCPU, 0));
}

static void negative_max_active_is_rejected(void)
{
	CHECK(!alloc_workqueue("bad", WQ_UNBOUND, -1));
}

static void large_max_active_is_clamped(void)
{
	struct workqueue_struct *wq = alloc_workqueue("large", WQ_UNBOUND, 1000000);

	CHECK(wq);
	destroy_workqueue(wq);
}

static void a_long_name_is_cut_off(void)
{
	char name[300];
	struct workqueue_struct *wq;

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = 0;
	wq = alloc_workqueue("%s", WQ_UNBOUND, 1, name);
	CHECK(wq);
	destroy_workqueue(wq);
}

static void a_name_is_bytes_and_not_text(void)
{
	struct workqueue_struct *wq = alloc_workqueue("%s", WQ_UNBOUND, 1, "\xff\xfe");

	CHECK(wq);
	destroy_workqueue(wq);
}

static void destroying_nothing_is_nothing(void)
{
	destroy_workqueue(NULL);
}

static void old_constructors_of_queues_work(void)
{
	struct workqueue_struct *one = create_workqueue("one"), *other = create_singlethread_workqueue("other");

	CHECK(one && other && one != other);
	destroy_workqueue(one);
	destroy_workqueue(other);
}

static void many_queues_are_created_and_destroyed(void)
{
	for (int i = 0; i < 300; i++) {
		struct workqueue_struct *wq = alloc_workqueue("many-%d", WQ_UNBOUND, 1, i);

		CHECK(wq);
		destroy_workqueue(wq);
	}
}

static void each_system_queue_runs_items(void)
{
	struct workqueue_struct *const queues[] = {
		system_wq, system_percpu_wq, system_highpri_wq, system_long_wq, system_unbound_wq, system_dfl_wq,
		system_freezable_wq, system_power_efficient_wq,
	};

	for (size_t i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
		struct job job;

		CHECK(queues[i]);
		init_job(&job, count);
		CHECK(queue_work(queues[i], &job.work));
		flush_work(&job.work);
		CHECK_EQ(job.nr_runs, 1);
	}
}

/* ---- queueing ---- */

static int nr_declared;

static void count_declared(struct work_struct *work)
{
	(void)work;
	nr_declared++;
}

static DECLARE_WORK(declared, count_declared);

static void a_declared_item_runs(void)
{
	CHECK(schedule_work(&declared));
	CHECK(flush_work(&declared) || nr_declared == 1);
	CHECK_EQ(nr_declared, 1);
}

static void an_item_on_the_stack_runs(void)
{
	struct job job;

	memset(&job, 0, sizeof(job));
	INIT_WORK_ONSTACK(&job.work, count);
	schedule_work(&job.work);
	flush_work(&job.work);
	destroy_work_on_stack(&job.work);
	CHECK_EQ(job.nr_runs, 1);
}

static void item_has_the_documented_size(void)
{
	CHECK_EQ(sizeof(struct work_struct), 64);
	CHECK_EQ(sizeof(struct delayed_work), 112);
	CHECK_EQ(_Alignof(struct delayed_work), 8);
}

/* Code of the kernel places structures in memory that is aligned to only 8 bytes. */
struct packed {
	void *first;
	struct work_struct work;
	struct delayed_work dwork;
	struct rcu_work rwork;
	void *last;
	int nr_runs;
};

static void count_packed(struct work_struct *work)
{
	__atomic_add_fetch(&container_of(work, struct packed, work)->nr_runs, 1, __ATOMIC_RELAXED);
}

static void count_packed_late(struct work_struct *work)
{
	struct packed *it = container_of(to_delayed_work(work), struct packed, dwork);

	__atomic_add_fetch(&it->nr_runs, 1, __ATOMIC_RELAXED);
}

static void count_packed_read(struct work_struct *work)
{
	struct packed *it = container_of(to_rcu_work(work), struct packed, rwork);

	__atomic_add_fetch(&it->nr_runs, 1, __ATOMIC_RELAXED);
}

/* Places items of all kinds at each multiple of 8, while flushes color the queue's items. */
static void item_needs_only_the_alignment_of_a_pointer(void)
{
	struct workqueue_struct *wq = alloc_workqueue("packed", WQ_UNBOUND, 0);
	char *memory = (char *)calloc(1, sizeof(struct packed) + 64);

	CHECK_EQ(_Alignof(struct packed), 8);
	for (size_t at = 0; at < 64; at += 8) {
		struct packed *it = (struct packed *)(void *)(memory + at);

		it->nr_runs = 0;
		INIT_WORK(&it->work, count_packed);
		INIT_DELAYED_WORK(&it->dwork, count_packed_late);
		INIT_RCU_WORK(&it->rwork, count_packed_read);
		for (int round = 0; round < 20; round++) {
			CHECK(queue_work(wq, &it->work));
			CHECK(queue_delayed_work(wq, &it->dwork, 1000000));
			CHECK(mod_delayed_work(wq, &it->dwork, (unsigned long)round % 2));
			CHECK(queue_rcu_work(wq, &it->rwork));
			if (round % 2)
				flush_workqueue(wq);
			flush_work(&it->work);
			flush_delayed_work(&it->dwork);
			flush_rcu_work(&it->rwork);
		}
		CHECK_EQ(it->nr_runs, 60);
		CHECK(queue_delayed_work(wq, &it->dwork, 1000000));
		CHECK(cancel_delayed_work_sync(&it->dwork));
	}
	destroy_workqueue(wq);
	free(memory);
}

/* A bcache closure overlays an item: its member `fn` has the same offset as the item's function. */
struct closure {
	union {
		struct {
			void *wq, *parent, *next;
			void (*fn)(struct work_struct *work);
		};
		struct work_struct work;
	};
	struct workqueue_struct *queue;
	int nr_steps;
};

static void last_step(struct work_struct *work)
{
	container_of(work, struct closure, work)->nr_steps++;
}

static void first_step(struct work_struct *work)
{
	struct closure *it = container_of(work, struct closure, work);

	it->nr_steps++;
	it->wq = it->parent = it->next = it;
	it->fn = last_step;
	INIT_WORK(&it->work, it->work.func);
	queue_work(it->queue, &it->work);
}

static void a_structure_that_overlays_an_item_finds_its_function(void)
{
	struct closure it = { .nr_steps = 0 };

	CHECK_EQ(offsetof(struct closure, fn), offsetof(struct closure, work.func));
	it.queue = alloc_workqueue("closures", WQ_UNBOUND, 1);
	it.fn = first_step;
	INIT_WORK(&it.work, it.work.func);
	CHECK(queue_work(it.queue, &it.work));
	destroy_workqueue(it.queue);
	CHECK_EQ(it.nr_steps, 2);
}

static void a_pending_item_is_not_queued_again(void)
{
	struct plugged p;
	struct job job;

	plug(&p);
	init_job(&job, count);
	CHECK(queue_work(p.wq, &job.work));
	CHECK(!queue_work(p.wq, &job.work));
	CHECK(!queue_work_on(0, p.wq, &job.work));
	CHECK(!schedule_work(&job.work));
	unplug_and_destroy(&p);
	CHECK_EQ(job.nr_runs, 1);
}

static void an_item_runs_as_often_as_it_was_queued(void)
{
	struct workqueue_struct *wq = alloc_workqueue("often", WQ_UNBOUND, 4);
	struct job job;

	init_job(&job, count);
	for (int i = 1; i <= 500; i++) {
		CHECK(queue_work(wq, &job.work));
		flush_work(&job.work);
		CHECK_EQ(job.nr_runs, i);
	}
	destroy_workqueue(wq);
}

static void an_item_runs_on_each_cpu_that_it_is_queued_on(void)
{
	struct job job;

	init_job(&job, count);
	for (int cpu = -1; cpu < 3; cpu++) {
		CHECK(schedule_work_on(cpu, &job.work));
		flush_work(&job.work);
	}
	CHECK_EQ(job.nr_runs, 4);
}

struct order {
	struct job job;
	int *next, place;
};

static void note_position(struct work_struct *work)
{
	struct order *order = container_of(work, struct order, job.work);

	order->place = (*order->next)++;
}

static void an_ordered_queue_keeps_the_order(void)
{
	struct order orders[100];
	struct plugged p;
	int next = 0;

	plug(&p);
	for (int i = 0; i < 100; i++) {
		init_job(&orders[i].job, note_position);
		orders[i].next = &next;
		CHECK(queue_work(p.wq, &orders[i].job.work));
	}
	unplug_and_destroy(&p);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(orders[i].place, i);
}

static void queue_again(struct work_struct *work)
{
	struct job *job = job_of(work);

	if (++job->nr_runs < 10)
		job->said += queue_work(job->again_on, work);
}

static void an_item_may_queue_itself(void)
{
	struct workqueue_struct *wq = alloc_workqueue("again", WQ_UNBOUND, 4);
	struct job job;

	init_job(&job, queue_again);
	job.again_on = wq;
	CHECK(queue_work(wq, &job.work));
	drain_workqueue(wq);
	CHECK_EQ(job.nr_runs, 10);
	CHECK_EQ(job.said, 9);
	destroy_workqueue(wq);
}

static void an_item_that_runs_and_is_queued_runs_after_that(void)
{
	struct workqueue_struct *one = alloc_workqueue("one", WQ_UNBOUND, 4);
	struct workqueue_struct *other = alloc_workqueue("other", WQ_UNBOUND, 4);
	sem_t started, go;
	struct job job;

	gate_init(&started);
	gate_init(&go);
	init_job(&job, count);
	job.started = &started;
	job.go = &go;
	for (int i = 0; i < 50; i++) {
		CHECK(queue_work(one, &job.work));
		gate_wait(&started);
		CHECK(queue_work(i % 2 ? one : other, &job.work));
		CHECK_EQ(work_busy(&job.work), WORK_BUSY_PENDING | WORK_BUSY_RUNNING);
		sem_post(&go);
		sem_post(&go);
		flush_work(&job.work);
		gate_wait(&started);
	}
	CHECK_EQ(job.nr_runs, 100);
	CHECK_EQ(job.overlaps, 0);
	destroy_workqueue(one);
	destroy_workqueue(other);
}

static int nr_freed;

static void free_self(struct work_struct *work)
{
	struct job *job = job_of(work);

	memset(job, 0x5a, sizeof(*job));
	free(job);
	__atomic_fetch_add(&nr_freed, 1, __ATOMIC_RELAXED);
}

static void an_item_may_free_itself(void)
{
	struct workqueue_struct *wq = alloc_workqueue("free", WQ_UNBOUND, 4);

	nr_freed = 0;
	for (int i = 0; i < 500; i++) {
		struct job *job = malloc(sizeof(*job));

		if (!job)
			abort();
		init_job(job, free_self);
		CHECK(queue_work(wq, &job->work));
	}
	destroy_workqueue(wq);
	CHECK_EQ(nr_freed, 500);
}

static void second_part(struct work_struct *work)
{
	job_of(work)->nr_runs += 100;
}

static void first_part(struct work_struct *work)
{
	struct job *job = job_of(work);

	job->nr_runs++;
	INIT_WORK(work, second_part);
	job->said = queue_work(job->again_on, work);
}

static void an_item_may_become_another_in_its_run(void)
{
	struct workqueue_struct *wq = alloc_workqueue("parts", WQ_UNBOUND, 1);
	struct job job;

	init_job(&job, first_part);
	job.again_on = wq;
	CHECK(queue_work(wq, &job.work));
	drain_workqueue(wq);
	CHECK(job.said);
	CHECK_EQ(job.nr_runs, 101);
	destroy_workqueue(wq);
}

static void writes_before_queueing_are_seen_by_the_run(void)
{
	struct workqueue_struct *wq = alloc_workqueue("seen", WQ_UNBOUND, 4);
	struct order order;
	int value = 0;

	init_job(&order.job, note_position);
	order.next = &value;
	for (int i = 0; i < 500; i++) {
		value = i;
		queue_work(wq, &order.job.work);
		flush_work(&order.job.work);
		CHECK_EQ(order.place, i);
	}
	destroy_workqueue(wq);
}

/* ---- waiting ---- */

static void flushing_an_idle_item_is_false(void)
{
	struct job job;

	init_job(&job, count);
	CHECK(!flush_work(&job.work));
	schedule_work(&job.work);
	flush_work(&job.work);
	CHECK(!flush_work(&job.work));
}

static void *flush_from_thread(void *work)
{
	return flush_work((struct work_struct *)work) ? work : NULL;
}

static void many_threads_flush_one_item(void)
{
	pthread_t threads[8];
	struct plugged p;
	struct job job;

	plug(&p);
	init_job(&job, count);
	queue_work(p.wq, &job.work);
	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, flush_from_thread, &job.work);
	unplug(&p);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(job.nr_runs, 1);
	destroy_workqueue(p.wq);
}

static void a_flush_ends_when_its_item_is_cancelled(void)
{
	struct plugged p;
	pthread_t thread;
	struct job job;
	void *waited;

	plug(&p);
	init_job(&job, count);
	queue_work(p.wq, &job.work);
	pthread_create(&thread, NULL, flush_from_thread, &job.work);
	/* The flush returns whether or not it is already waiting. */
	usleep(1000);
	CHECK(cancel_work(&job.work));
	pthread_join(thread, &waited);
	CHECK_EQ(job.nr_runs, 0);
	unplug_and_destroy(&p);
}

static void flush_other(struct work_struct *work)
{
	struct job *job = job_of(work);

	flush_work(job->other);
	job->said = job_of(job->other)->nr_runs;
}

static void an_item_may_flush_another(void)
{
	struct workqueue_struct *wq = alloc_workqueue("other", WQ_UNBOUND, 2);
	struct job first, second;

	init_job(&first, count);
	init_job(&second, flush_other);
	second.other = &first.work;
	queue_work(wq, &first.work);
	queue_work(wq, &second.work);
	flush_work(&second.work);
	CHECK_EQ(second.said, 1);
	destroy_workqueue(wq);
}

static void flushing_a_queue_waits_for_all(void)
{
	struct workqueue_struct *wq = alloc_workqueue("all", WQ_UNBOUND, 8);
	struct job jobs[100];
	int sum = 0;

	for (int i = 0; i < 100; i++) {
		init_job(&jobs[i], count);
		queue_work(wq, &jobs[i].work);
	}
	flush_workqueue(wq);
	for (int i = 0; i < 100; i++)
		sum += jobs[i].nr_runs;
	CHECK_EQ(sum, 100);
	destroy_workqueue(wq);
}

static void destroying_a_queue_runs_its_items(void)
{
	struct workqueue_struct *wq = alloc_workqueue("end", WQ_UNBOUND, 1);
	struct job jobs[100];
	int sum = 0;

	for (int i = 0; i < 100; i++) {
		init_job(&jobs[i], count);
		queue_work(wq, &jobs[i].work);
	}
	destroy_workqueue(wq);
	for (int i = 0; i < 100; i++)
		sum += jobs[i].nr_runs;
	CHECK_EQ(sum, 100);
}

/* ---- cancelling ---- */

static void a_cancelled_item_does_not_run_and_may_be_freed(void)
{
	struct plugged p;

	plug(&p);
	for (int i = 0; i < 50; i++) {
		struct job *job = malloc(sizeof(*job));

		if (!job)
			abort();
		init_job(job, count);
		CHECK(queue_work(p.wq, &job->work));
		CHECK(i % 2 ? cancel_work(&job->work) : cancel_work_sync(&job->work));
		free(job);
	}
	unplug_and_destroy(&p);
}

static void item_in_the_middle_of_a_list_is_cancelled(void)
{
	struct job jobs[9];
	struct plugged p;

	plug(&p);
	for (int i = 0; i < 9; i++) {
		init_job(&jobs[i], count);
		queue_work(p.wq, &jobs[i].work);
	}
	for (int i = 1; i < 9; i += 2)
		CHECK(cancel_work(&jobs[i].work));
	unplug_and_destroy(&p);
	for (int i = 0; i < 9; i++)
		CHECK_EQ(jobs[i].nr_runs, i % 2 == 0);
}

static void cancelling_an_idle_item_is_false(void)
{
	struct job job;

	init_job(&job, count);
	CHECK(!cancel_work(&job.work));
	CHECK(!cancel_work_sync(&job.work));
}

static void cancel_sync_waits_for_the_run(void)
{
	struct workqueue_struct *wq = alloc_workqueue("sync", WQ_UNBOUND, 1);
	struct job job;
	sem_t started;

	gate_init(&started);
	init_job(&job, count);
	job.started = &started;
	for (int i = 1; i <= 200; i++) {
		CHECK(queue_work(wq, &job.work));
		gate_wait(&started);
		CHECK(!cancel_work_sync(&job.work));
		CHECK_EQ(job.nr_runs, i);
		CHECK_EQ(work_busy(&job.work), 0);
	}
	destroy_workqueue(wq);
}

static void cancel_sync_ends_an_item_that_queues_itself(void)
{
	struct workqueue_struct *wq = alloc_workqueue("restless", WQ_UNBOUND, 1);
	struct job job;

	init_job(&job, queue_again);
	job.again_on = wq;
	job.nr_runs = -1000000;
	CHECK(queue_work(wq, &job.work));
	cancel_work_sync(&job.work);
	CHECK_EQ(work_busy(&job.work), 0);
	destroy_workqueue(wq);
}

static void cancel_own(struct work_struct *work)
{
	struct job *job = job_of(work);

	queue_work(job->again_on, work);
	job->said = cancel_work_sync(work);
	job->nr_runs++;
}

static void an_item_may_cancel_itself(void)
{
	struct workqueue_struct *wq = alloc_workqueue("own", WQ_UNBOUND, 1);
	struct job job;

	init_job(&job, cancel_own);
	job.again_on = wq;
	CHECK(queue_work(wq, &job.work));
	drain_workqueue(wq);
	CHECK_EQ(job.nr_runs, 1);
	CHECK(job.said);
	destroy_workqueue(wq);
}

static void cancel_other(struct work_struct *work)
{
	struct job *job = job_of(work);

	job->said = cancel_work_sync(job->other);
}

static void an_item_cancels_the_one_behind_it(void)
{
	struct job first, second;
	struct plugged p;

	plug(&p);
	init_job(&first, cancel_other);
	init_job(&second, count);
	first.other = &second.work;
	queue_work(p.wq, &first.work);
	queue_work(p.wq, &second.work);
	unplug_and_destroy(&p);
	CHECK(first.said);
	CHECK_EQ(second.nr_runs, 0);
}

static void disabled_item_is_rejected_until_enabled_as_often(void)
{
	struct plugged p;
	struct job job;

	plug(&p);
	init_job(&job, count);
	queue_work(p.wq, &job.work);
	CHECK(disable_work(&job.work));
	CHECK(!disable_work_sync(&job.work));
	CHECK(!queue_work(p.wq, &job.work));
	CHECK(!enable_work(&job.work));
	CHECK(!queue_work(p.wq, &job.work));
	CHECK(enable_work(&job.work));
	CHECK(queue_work(p.wq, &job.work));
	unplug_and_destroy(&p);
	CHECK_EQ(job.nr_runs, 1);
}

static void enable_and_queue_queues_with_the_last_enable(void)
{
	struct workqueue_struct *wq = alloc_workqueue("enable", WQ_UNBOUND, 1);
	struct job job;

	init_job(&job, count);
	disable_work(&job.work);
	disable_work(&job.work);
	CHECK(!enable_and_queue_work(wq, &job.work));
	CHECK(enable_and_queue_work(wq, &job.work));
	destroy_workqueue(wq);
	CHECK_EQ(job.nr_runs, 1);
}

/* ---- queries ---- */

static void an_item_is_pending_then_running_then_idle(void)
{
	sem_t started, go;
	struct plugged p;
	struct job job;

	gate_init(&started);
	gate_init(&go);
	plug(&p);
	init_job(&job, count);
	job.started = &started;
	job.go = &go;
	CHECK_EQ(work_busy(&job.work), 0);
	queue_work(p.wq, &job.work);
	CHECK(work_pending(&job.work));
	CHECK_EQ(work_busy(&job.work), WORK_BUSY_PENDING);
	sem_post(&p.go);
	gate_wait(&started);
	CHECK(!work_pending(&job.work));
	CHECK_EQ(work_busy(&job.work), WORK_BUSY_RUNNING);
	sem_post(&go);
	flush_work(&job.work);
	CHECK_EQ(work_busy(&job.work), 0);
	destroy_workqueue(p.wq);
}

static void note_current(struct work_struct *work)
{
	job_of(work)->said = current_work() == work;
}

static void an_item_knows_that_it_is_current(void)
{
	struct job job;

	init_job(&job, note_current);
	CHECK(!current_work());
	schedule_work(&job.work);
	flush_work(&job.work);
	CHECK(job.said);
	CHECK(!current_work());
}

static void max_active_bounds_how_many_run(void)
{
	struct workqueue_struct *wq = alloc_workqueue("bound", WQ_UNBOUND, 1);
	struct job jobs[20];
	sem_t started, go;
	int value;

	gate_init(&started);
	gate_init(&go);
	for (int i = 0; i < 20; i++) {
		init_job(&jobs[i], count);
		jobs[i].started = &started;
		jobs[i].go = &go;
		queue_work(wq, &jobs[i].work);
	}
	gate_wait(&started);
	sem_getvalue(&started, &value);
	CHECK_EQ(value, 0);
	CHECK_EQ(workqueue_set_max_active(wq, 3), 0);
	gate_wait(&started);
	gate_wait(&started);
	for (int i = 0; i < 20; i++)
		sem_post(&go);
	destroy_workqueue(wq);
}

static long sleep_for_a_moment(void *data)
{
	usleep(1000);
	return *(long *)data;
}

static void sleeping_call_answers(void)
{
	long answer = 42;

	CHECK_EQ(afterwork_blocking(sleep_for_a_moment, &answer), 42);
}

/* ---- jumps ---- */

static sigjmp_buf back;

static void jump_within_itself(struct work_struct *work)
{
	/* Jumps back into the function's own frame, because jumping out of it is not defined. */
	if (sigsetjmp(back, 0) == 0)
		siglongjmp(back, 1);
	count(work);
}

static void a_function_may_jump_within_itself(void)
{
	struct job job;

	init_job(&job, jump_within_itself);
	CHECK(schedule_work(&job.work));
	flush_work(&job.work);
	CHECK_EQ(job.nr_runs, 1);
}

/* ---- many ---- */

static void thousands_of_queues_are_created_and_destroyed(void)
{
	enum { NR = 3000 };
	struct workqueue_struct **queues = calloc(NR, sizeof(*queues));
	struct job job;

	init_job(&job, count);
	for (int i = 0; i < NR; i++) {
		queues[i] = alloc_workqueue("one-%d-of-many", i % 2 ? WQ_UNBOUND : 0, 1 + i % 5, i);
		CHECK(queues[i] != NULL);
	}
	for (int i = 0; i < NR; i++) {
		CHECK(queue_work(queues[i], &job.work));
		flush_work(&job.work);
	}
	for (int i = 0; i < NR; i++)
		destroy_workqueue(queues[i]);
	CHECK_EQ(job.nr_runs, NR);
	free(queues);
}

/* ---- fork ---- */

/* Runs in a child. Uses all functions again. Returns the exit code of the child. */
static int work_in_child(void)
{
	struct workqueue_struct *wq = alloc_workqueue("child", WQ_UNBOUND, 2);
	struct delayed_work dwork;
	struct job job;

	if (!wq)
		return 1;
	init_job(&job, count);
	if (!queue_work(wq, &job.work))
		return 2;
	flush_work(&job.work);
	INIT_DELAYED_WORK(&dwork, count_declared);
	if (!queue_delayed_work(wq, &dwork, 1000 * HZ) || !cancel_delayed_work_sync(&dwork))
		return 3;
	if (!queue_delayed_work(wq, &dwork, 1) || !schedule_work(&job.work))
		return 4;
	flush_delayed_work(&dwork);
	flush_work(&job.work);
	destroy_workqueue(wq);
	return job.nr_runs == 2 ? 0 : 5;
}

static void a_child_of_fork_has_queues_of_its_own(void)
{
	struct delayed_work dwork;
	char answer = -1;
	struct plugged p;
	int fds[2];
	pid_t child;

	/* Fork while an item runs, another is queued behind it, and a timer is armed. */
	plug(&p);
	INIT_DELAYED_WORK(&dwork, count_declared);
	queue_delayed_work(p.wq, &dwork, 1000 * HZ);
	CHECK(pipe(fds) == 0);
	child = fork();
	if (child == 0) {
		answer = (char)work_in_child();
		CHECK(write(fds[1], &answer, 1) == 1);
		/* The child does not free the objects of its parent, so a leak checker must not run. */
		raise(SIGKILL);
	}
	close(fds[1]);
	CHECK(read(fds[0], &answer, 1) == 1);
	close(fds[0]);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK_EQ(answer, 0);
	CHECK(cancel_delayed_work_sync(&dwork));
	unplug_and_destroy(&p);
}

/* ---- all at once ---- */

struct crowd {
	struct workqueue_struct *queues[3];
	struct job jobs[4];
	long balance[4];
	unsigned int seed;
};

static void *do_anything(void *data)
{
	struct crowd *crowd = data;
	unsigned int dice = __atomic_add_fetch(&crowd->seed, 7919, __ATOMIC_RELAXED);

	for (int i = 0; i < 3000; i++) {
		int nth, act;
		struct job *job;
		long change = 0;

		dice = dice * 1103515245u + 12345u;
		nth = (int)(dice >> 16) % 4;
		act = (int)(dice >> 20) % 8;
		job = &crowd->jobs[nth];
		if (act < 4)
			change = queue_work(crowd->queues[act % 3], &job->work);
		else if (act < 6)
			change = -(long)cancel_work(&job->work);
		else if (act < 7)
			change = -(long)cancel_work_sync(&job->work);
		else
			flush_work(&job->work);
		__atomic_fetch_add(&crowd->balance[nth], change, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void threads_do_anything_to_the_same_items(void)
{
	struct crowd crowd = { .seed = (unsigned int)getpid() };
	pthread_t threads[4];

	crowd.queues[0] = alloc_ordered_workqueue("crowd-0", 0);
	crowd.queues[1] = alloc_workqueue("crowd-1", WQ_UNBOUND, 4);
	crowd.queues[2] = alloc_workqueue("crowd-2", 0, 4);
	for (int i = 0; i < 4; i++)
		init_job(&crowd.jobs[i], count);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, do_anything, &crowd);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 3; i++)
		destroy_workqueue(crowd.queues[i]);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(crowd.jobs[i].nr_runs, crowd.balance[i]);
		CHECK_EQ(crowd.jobs[i].overlaps, 0);
	}
	if (nr_failed_checks)
		fprintf(stderr, "    seed %u\n", (unsigned int)getpid());
}

#define T(name) { #name, name }
const struct test workqueue_tests[] = {
	T(each_flag_creates_a_queue_that_runs),
	T(unknown_flags_are_rejected),
	T(contradicting_flags_are_rejected),
	T(negative_max_active_is_rejected),
	T(large_max_active_is_clamped),
	T(a_long_name_is_cut_off),
	T(a_name_is_bytes_and_not_text),
	T(destroying_nothing_is_nothing),
	T(old_constructors_of_queues_work),
	T(many_queues_are_created_and_destroyed),
	T(each_system_queue_runs_items),
	T(a_declared_item_runs),
	T(an_item_on_the_stack_runs),
	T(item_has_the_documented_size),
	T(item_needs_only_the_alignment_of_a_pointer),
	T(a_structure_that_overlays_an_item_finds_its_function),
	T(a_pending_item_is_not_queued_again),
	T(an_item_runs_as_often_as_it_was_queued),
	T(an_item_runs_on_each_cpu_that_it_is_queued_on),
	T(an_ordered_queue_keeps_the_order),
	T(an_item_may_queue_itself),
	T(an_item_that_runs_and_is_queued_runs_after_that),
	T(an_item_may_free_itself),
	T(an_item_may_become_another_in_its_run),
	T(writes_before_queueing_are_seen_by_the_run),
	T(flushing_an_idle_item_is_false),
	T(many_threads_flush_one_item),
	T(a_flush_ends_when_its_item_is_cancelled),
	T(an_item_may_flush_another),
	T(flushing_a_queue_waits_for_all),
	T(destroying_a_queue_runs_its_items),
	T(a_cancelled_item_does_not_run_and_may_be_freed),
	T(item_in_the_middle_of_a_list_is_cancelled),
	T(cancelling_an_idle_item_is_false),
	T(cancel_sync_waits_for_the_run),
	T(cancel_sync_ends_an_item_that_queues_itself),
	T(an_item_may_cancel_itself),
	T(an_item_cancels_the_one_behind_it),
	T(disabled_item_is_rejected_until_enabled_as_often),
	T(enable_and_queue_queues_with_the_last_enable),
	T(an_item_is_pending_then_running_then_idle),
	T(an_item_knows_that_it_is_current),
	T(max_active_bounds_how_many_run),
	T(sleeping_call_answers),
	T(a_function_may_jump_within_itself),
	T(thousands_of_queues_are_created_and_destroyed),
	T(a_child_of_fork_has_queues_of_its_own),
	T(threads_do_anything_to_the_same_items),
	{ NULL, NULL },
};
