/* Items with timers. */
#include "check.h"

#include <afterwork/workqueue.h>

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOUR (3600ul * HZ)

struct tick {
	struct delayed_work dwork;
	struct workqueue_struct *wq;
	int nr_runs, nr_wanted;
	long long at_ns;
	sem_t *ran;
};

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void tick(struct work_struct *work)
{
	struct tick *tick = container_of(to_delayed_work(work), struct tick, dwork);

	tick->at_ns = now_ns();
	if (++tick->nr_runs < tick->nr_wanted)
		queue_delayed_work(tick->wq, &tick->dwork, 1);
	if (tick->ran)
		sem_post(tick->ran);
}

static void init_tick(struct tick *it)
{
	memset(it, 0, sizeof(*it));
	INIT_DELAYED_WORK(&it->dwork, tick);
	it->wq = alloc_workqueue("tick", WQ_UNBOUND, 2);
}

static void an_item_is_queued_after_its_delay(void)
{
	struct tick it;
	long long start_ns;
	sem_t ran;

	init_tick(&it);
	gate_init(&ran);
	it.ran = &ran;
	start_ns = now_ns();
	CHECK(queue_delayed_work(it.wq, &it.dwork, 5));
	gate_wait(&ran);
	CHECK(it.at_ns - start_ns >= 5000000);
	destroy_workqueue(it.wq);
}

static void zero_delay_queues_at_once(void)
{
	struct tick it;

	init_tick(&it);
	CHECK(queue_delayed_work(it.wq, &it.dwork, 0));
	flush_delayed_work(&it.dwork);
	CHECK_EQ(it.nr_runs, 1);
	destroy_workqueue(it.wq);
}

static void an_armed_item_is_pending(void)
{
	struct tick it;

	init_tick(&it);
	CHECK(!delayed_work_pending(&it.dwork));
	CHECK(queue_delayed_work(it.wq, &it.dwork, HOUR));
	CHECK(delayed_work_pending(&it.dwork));
	CHECK(work_pending(&it.dwork.work));
	CHECK(!queue_delayed_work(it.wq, &it.dwork, HOUR));
	CHECK(!queue_delayed_work(it.wq, &it.dwork, 0));
	CHECK(!queue_work(it.wq, &it.dwork.work));
	CHECK(cancel_delayed_work(&it.dwork));
	CHECK(!delayed_work_pending(&it.dwork));
	destroy_workqueue(it.wq);
}

static void a_flush_does_not_wait_for_the_time(void)
{
	struct tick it;

	init_tick(&it);
	queue_delayed_work(it.wq, &it.dwork, HOUR);
	CHECK(!flush_work(&it.dwork.work));
	CHECK_EQ(it.nr_runs, 0);
	CHECK(flush_delayed_work(&it.dwork));
	CHECK_EQ(it.nr_runs, 1);
	CHECK(!flush_delayed_work(&it.dwork));
	destroy_workqueue(it.wq);
}

static void a_delay_is_changed(void)
{
	struct tick it;
	sem_t ran;

	init_tick(&it);
	gate_init(&ran);
	it.ran = &ran;
	CHECK(!mod_delayed_work(it.wq, &it.dwork, HOUR));
	CHECK(mod_delayed_work(it.wq, &it.dwork, 2 * HOUR));
	CHECK(mod_delayed_work_on(0, it.wq, &it.dwork, 1));
	gate_wait(&ran);
	flush_delayed_work(&it.dwork);
	CHECK(!mod_delayed_work(it.wq, &it.dwork, 0));
	flush_delayed_work(&it.dwork);
	CHECK_EQ(it.nr_runs, 2);
	destroy_workqueue(it.wq);
}

static void a_cancelled_timer_does_not_fire(void)
{
	struct tick it;

	init_tick(&it);
	for (int i = 0; i < 200; i++) {
		CHECK(queue_delayed_work(it.wq, &it.dwork, HOUR));
		CHECK(i % 2 ? cancel_delayed_work(&it.dwork) : cancel_delayed_work_sync(&it.dwork));
		CHECK(!cancel_delayed_work_sync(&it.dwork));
	}
	CHECK_EQ(it.nr_runs, 0);
	destroy_workqueue(it.wq);
}

static void teardown_ends_an_item_that_arms_itself(void)
{
	struct tick it;
	sem_t ran;

	init_tick(&it);
	gate_init(&ran);
	it.ran = &ran;
	it.nr_wanted = 1000000;
	queue_delayed_work(it.wq, &it.dwork, 1);
	gate_wait(&ran);
	gate_wait(&ran);
	cancel_delayed_work_sync(&it.dwork);
	CHECK(!delayed_work_pending(&it.dwork));
	destroy_workqueue(it.wq);
}

static void disabled_timer_is_rejected(void)
{
	struct tick it;

	init_tick(&it);
	queue_delayed_work(it.wq, &it.dwork, HOUR);
	CHECK(disable_delayed_work(&it.dwork));
	CHECK(!disable_delayed_work_sync(&it.dwork));
	CHECK(!queue_delayed_work(it.wq, &it.dwork, 1));
	CHECK(!mod_delayed_work(it.wq, &it.dwork, 1));
	CHECK(!enable_delayed_work(&it.dwork));
	CHECK(enable_delayed_work(&it.dwork));
	CHECK(queue_delayed_work(it.wq, &it.dwork, HOUR));
	CHECK(cancel_delayed_work_sync(&it.dwork));
	destroy_workqueue(it.wq);
}

static void timers_fire_in_the_order_of_their_times(void)
{
	struct tick ticks[20];
	sem_t ran;

	gate_init(&ran);
	for (int i = 0; i < 20; i++) {
		init_tick(&ticks[i]);
		ticks[i].ran = &ran;
	}
	/*
	 * The timers are not armed in the order in which they fire. The time of a run identifies its item.
	 */
	for (int i = 0; i < 20; i++) {
		int nth = i * 7 % 20;

		CHECK(queue_delayed_work(ticks[nth].wq, &ticks[nth].dwork, (unsigned long)(20 + nth)));
	}
	for (int i = 0; i < 20; i++)
		gate_wait(&ran);
	for (int i = 0; i < 20; i++) {
		CHECK_EQ(ticks[i].nr_runs, 1);
		destroy_workqueue(ticks[i].wq);
	}
}

static void destroying_a_queue_removes_its_timers(void)
{
	struct tick it, other;

	init_tick(&it);
	init_tick(&other);
	queue_delayed_work(it.wq, &it.dwork, HOUR);
	queue_delayed_work(other.wq, &other.dwork, HOUR);
	destroy_workqueue(it.wq);
	CHECK(!delayed_work_pending(&it.dwork));
	CHECK(delayed_work_pending(&other.dwork));
	CHECK(!cancel_delayed_work_sync(&it.dwork));
	CHECK(cancel_delayed_work_sync(&other.dwork));
	destroy_workqueue(other.wq);
}

struct ending {
	struct tick it;
	sem_t is_ending;
};

static void arm_at_the_end(struct work_struct *work)
{
	struct tick *it = container_of(to_delayed_work(work), struct tick, dwork);

	it->nr_runs++;
	gate_wait(&container_of(it, struct ending, it)->is_ending);
	CHECK(queue_delayed_work(it->wq, &it->dwork, HOUR));
}

static void nothing(struct work_struct *work)
{
	(void)work;
}

static void *notify_end(void *data)
{
	struct ending *ending = data;
	struct work_struct probe;

	/* A queue that is being destroyed rejects the items of other threads. This queue still exists. */
	INIT_WORK(&probe, nothing);
	while (queue_work(ending->it.wq, &probe))
		cancel_work_sync(&probe);
	sem_post(&ending->is_ending);
	return NULL;
}

static void destroying_a_queue_removes_timers_of_its_last_items(void)
{
	struct ending ending;
	pthread_t notifier;

	init_tick(&ending.it);
	INIT_DELAYED_WORK(&ending.it.dwork, arm_at_the_end);
	gate_init(&ending.is_ending);
	queue_delayed_work(ending.it.wq, &ending.it.dwork, 0);
	pthread_create(&notifier, NULL, notify_end, &ending);
	destroy_workqueue(ending.it.wq);
	pthread_join(notifier, NULL);
	CHECK_EQ(ending.it.nr_runs, 1);
	CHECK(!delayed_work_pending(&ending.it.dwork));
	CHECK(!cancel_delayed_work_sync(&ending.it.dwork));
}

static void queues_are_destroyed_under_items_that_arm_themselves(void)
{
	enum { NR_QUEUES = 100, NR_ITEMS = 6 };
	struct tick items[NR_ITEMS];

	for (int i = 0; i < NR_QUEUES; i++) {
		struct workqueue_struct *wq = alloc_workqueue("tick", i % 2 ? WQ_UNBOUND : 0, 0);

		for (int j = 0; j < NR_ITEMS; j++) {
			memset(&items[j], 0, sizeof(items[j]));
			INIT_DELAYED_WORK(&items[j].dwork, tick);
			items[j].wq = wq;
			items[j].nr_wanted = 1 << 30;
			queue_delayed_work(wq, &items[j].dwork, 1);
		}
		usleep(1000 + (unsigned int)i * 13 % 500);
		destroy_workqueue(wq);
		for (int j = 0; j < NR_ITEMS; j++)
			CHECK(!work_busy(&items[j].dwork.work));
	}
}

static int nr_declared;

static void count_declared(struct work_struct *work)
{
	(void)work;
	nr_declared++;
}

static DECLARE_DELAYED_WORK(declared, count_declared);

static void a_declared_delayed_item_runs(void)
{
	CHECK(schedule_delayed_work(&declared, HOUR));
	CHECK(!schedule_delayed_work_on(0, &declared, HOUR));
	CHECK(flush_delayed_work(&declared));
	CHECK_EQ(nr_declared, 1);
}

static void a_long_delay_is_long(void)
{
	struct tick it;

	init_tick(&it);
	CHECK(queue_delayed_work(it.wq, &it.dwork, ~0ul));
	CHECK(cancel_delayed_work_sync(&it.dwork));
	CHECK_EQ(it.nr_runs, 0);
	destroy_workqueue(it.wq);
}

struct mover {
	struct workqueue_struct *wq;
	struct delayed_work dwork;
	bool is_over;
	int nr_idle, nr_queued;
};

static void *queue_at_the_same_time(void *data)
{
	struct mover *it = data;

	while (!__atomic_load_n(&it->is_over, __ATOMIC_ACQUIRE)) {
		it->nr_idle += !delayed_work_pending(&it->dwork);
		it->nr_queued += queue_delayed_work(it->wq, &it->dwork, HOUR);
		it->nr_queued += queue_work(it->wq, &it->dwork.work);
	}
	return NULL;
}

static void never(struct work_struct *work)
{
	(void)work;
	abort();
}

struct plug_here {
	struct work_struct work;
	sem_t gate;
};

static void block_on_gate(struct work_struct *work)
{
	gate_wait(&container_of(work, struct plug_here, work)->gate);
}

static void an_item_that_is_moved_is_pending_throughout(void)
{
	struct workqueue_struct *other = alloc_workqueue("other", WQ_UNBOUND, 1);
	struct mover it = { .wq = alloc_ordered_workqueue("moved", 0) };
	struct plug_here plug;
	pthread_t thread;

	/* Items that are queued later stay behind this item. */
	gate_init(&plug.gate);
	INIT_WORK(&plug.work, block_on_gate);
	queue_work(it.wq, &plug.work);
	INIT_DELAYED_WORK(&it.dwork, never);
	CHECK(!mod_delayed_work(it.wq, &it.dwork, HOUR));
	pthread_create(&thread, NULL, queue_at_the_same_time, &it);
	for (int i = 0; i < 3000; i++) {
		CHECK(mod_delayed_work(i % 5 ? it.wq : other, &it.dwork, HOUR));
		CHECK(mod_delayed_work(it.wq, &it.dwork, i % 2 ? 0 : HOUR));
	}
	__atomic_store_n(&it.is_over, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	CHECK_EQ(it.nr_idle, 0);
	CHECK_EQ(it.nr_queued, 0);
	CHECK(cancel_delayed_work_sync(&it.dwork));
	sem_post(&plug.gate);
	destroy_workqueue(it.wq);
	destroy_workqueue(other);
}

static void *cancel_at_the_same_time(void *data)
{
	struct mover *it = data;

	while (!__atomic_load_n(&it->is_over, __ATOMIC_ACQUIRE)) {
		disable_delayed_work_sync(&it->dwork);
		it->nr_idle += delayed_work_pending(&it->dwork);
		enable_delayed_work(&it->dwork);
	}
	return NULL;
}

static void an_item_that_is_disabled_while_it_is_moved_is_not_pending(void)
{
	struct mover it = { .wq = alloc_workqueue("moved", WQ_UNBOUND, 1) };
	pthread_t thread;

	INIT_DELAYED_WORK(&it.dwork, never);
	pthread_create(&thread, NULL, cancel_at_the_same_time, &it);
	for (int i = 0; i < 5000; i++)
		mod_delayed_work(it.wq, &it.dwork, HOUR + (unsigned long)i % 7);
	__atomic_store_n(&it.is_over, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	CHECK_EQ(it.nr_idle, 0);
	cancel_delayed_work_sync(&it.dwork);
	destroy_workqueue(it.wq);
}

/* ---- fork ---- */

/*
 * Runs in a child. Uses timers that the parent armed, and arms them itself. Returns the exit code
 * of the child.
 */
static int timers_in_child(struct delayed_work *dworks, int nr)
{
	struct workqueue_struct *wq = alloc_workqueue("child", WQ_UNBOUND, 2);

	for (int i = 0; i < nr; i++) {
		bool was_pending = false;

		if (i % 4 == 0)
			was_pending = cancel_delayed_work(&dworks[i]);
		else if (i % 4 == 1)
			was_pending = cancel_delayed_work_sync(&dworks[i]);
		else if (i % 4 == 2)
			was_pending = flush_delayed_work(&dworks[i]);
		else
			was_pending = mod_delayed_work(wq, &dworks[i], HOUR);
		if (was_pending)
			return 1;
		if (delayed_work_pending(&dworks[i]) != (i % 4 == 3))
			return 2;
	}
	for (int i = 0; i < nr; i++) {
		if (queue_delayed_work(wq, &dworks[i], HOUR) != (i % 4 != 3))
			return 3;
	}
	for (int i = 0; i < nr; i++) {
		if (!cancel_delayed_work_sync(&dworks[i]))
			return 4;
	}
	destroy_workqueue(wq);
	return 0;
}

static void a_child_of_fork_finds_timers_of_its_parent_idle(void)
{
	struct workqueue_struct *wq = alloc_workqueue("parent", WQ_UNBOUND, 2);
	struct delayed_work dworks[12];
	char answer = -1;
	int fds[2];
	pid_t child;

	for (int i = 0; i < 12; i++) {
		INIT_DELAYED_WORK(&dworks[i], never);
		queue_delayed_work(wq, &dworks[i], HOUR + (unsigned long)(i * 5 % 12));
	}
	CHECK(pipe(fds) == 0);
	child = fork();
	if (child == 0) {
		answer = (char)timers_in_child(dworks, 12);
		CHECK(write(fds[1], &answer, 1) == 1);
		raise(SIGKILL);
	}
	close(fds[1]);
	CHECK(read(fds[0], &answer, 1) == 1);
	close(fds[0]);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK_EQ(answer, 0);
	for (int i = 0; i < 12; i++)
		CHECK(cancel_delayed_work_sync(&dworks[i]));
	destroy_workqueue(wq);
}

#define T(name) { #name, name }
const struct test delayed_tests[] = {
	T(an_item_is_queued_after_its_delay),
	T(zero_delay_queues_at_once),
	T(an_armed_item_is_pending),
	T(a_flush_does_not_wait_for_the_time),
	T(a_delay_is_changed),
	T(a_cancelled_timer_does_not_fire),
	T(teardown_ends_an_item_that_arms_itself),
	T(disabled_timer_is_rejected),
	T(timers_fire_in_the_order_of_their_times),
	T(destroying_a_queue_removes_its_timers),
	T(destroying_a_queue_removes_timers_of_its_last_items),
	T(queues_are_destroyed_under_items_that_arm_themselves),
	T(a_declared_delayed_item_runs),
	T(a_long_delay_is_long),
	T(an_item_that_is_moved_is_pending_throughout),
	T(an_item_that_is_disabled_while_it_is_moved_is_not_pending),
	T(a_child_of_fork_finds_timers_of_its_parent_idle),
	{ NULL, NULL },
};
