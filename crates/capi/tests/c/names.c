/* Tests additional names that ported code uses. */
#include "check.h"

#include <afterwork/percpu.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/workqueue.h>

#include <sched.h>
#include <unistd.h>

/* ---- items that wait for a grace period ---- */

struct removal {
	struct rcu_work rwork;
	int nr_runs;
};

static void remove_it(struct work_struct *work)
{
	struct removal *it = container_of(to_rcu_work(work), struct removal, rwork);

	__atomic_add_fetch(&it->nr_runs, 1, __ATOMIC_RELAXED);
}

static void an_item_waits_for_a_grace_period(void)
{
	struct workqueue_struct *wq = alloc_workqueue("rcu", WQ_UNBOUND, 2);
	struct removal it = { .nr_runs = 0 };

	INIT_RCU_WORK(&it.rwork, remove_it);
	rcu_read_lock();
	CHECK(queue_rcu_work(wq, &it.rwork));
	CHECK(!queue_rcu_work(wq, &it.rwork));
	CHECK(!queue_work(wq, &it.rwork.work));
	CHECK(work_pending(&it.rwork.work));
	/* The readers have not ended. */
	for (int i = 0; i < 100; i++)
		sched_yield();
	CHECK_EQ(__atomic_load_n(&it.nr_runs, __ATOMIC_RELAXED), 0);
	rcu_read_unlock();
	flush_rcu_work(&it.rwork);
	CHECK_EQ(it.nr_runs, 1);
	CHECK(!flush_rcu_work(&it.rwork));
	destroy_workqueue(wq);
}

static void it_is_queued_again_and_again(void)
{
	struct removal it = { .nr_runs = 0 };

	INIT_RCU_WORK(&it.rwork, remove_it);
	for (int i = 1; i <= 20; i++) {
		CHECK(queue_rcu_work(system_wq, &it.rwork));
		flush_rcu_work(&it.rwork);
		CHECK_EQ(it.nr_runs, i);
	}
}

static void a_queue_waits_for_grace_periods_when_it_ends(void)
{
	struct workqueue_struct *wq = alloc_workqueue("rcu", WQ_UNBOUND, 2);
	struct removal them[10];

	for (int i = 0; i < 10; i++) {
		them[i].nr_runs = 0;
		INIT_RCU_WORK(&them[i].rwork, remove_it);
		CHECK(queue_rcu_work(wq, &them[i].rwork));
	}
	destroy_workqueue(wq);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(them[i].nr_runs, 1);
}

static void item_disabled_at_the_same_time_does_not_run(void)
{
	struct removal it = { .nr_runs = 0 };

	INIT_RCU_WORK(&it.rwork, remove_it);
	rcu_read_lock();
	CHECK(queue_rcu_work(system_wq, &it.rwork));
	CHECK(!disable_work(&it.rwork.work));
	rcu_read_unlock();
	rcu_barrier();
	flush_rcu_work(&it.rwork);
	CHECK_EQ(it.nr_runs, 0);
	CHECK(!work_pending(&it.rwork.work));
	CHECK(!queue_rcu_work(system_wq, &it.rwork));
	CHECK(enable_work(&it.rwork.work));
	CHECK(queue_rcu_work(system_wq, &it.rwork));
	flush_rcu_work(&it.rwork);
	CHECK_EQ(it.nr_runs, 1);
}

/* ---- attributes ---- */

static int seen_cpu;

static void see_cpu(struct work_struct *work)
{
	(void)work;
	seen_cpu = sched_getcpu();
}

static void a_queue_keeps_to_the_cpus_of_its_attributes(void)
{
	struct workqueue_struct *wq = alloc_workqueue("bound", WQ_UNBOUND, 4);
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();
	unsigned int cpu = raw_smp_processor_id();
	DECLARE_WORK(work, see_cpu);

	CHECK(attrs && attrs->nice == 0);
	cpumask_clear(attrs->cpumask);
	cpumask_set_cpu(cpu, attrs->cpumask);
	attrs->affn_strict = true;
	CHECK_EQ(apply_workqueue_attrs(wq, attrs), 0);
	/*
	 * This holds only if a worker runs the item. The flushing thread may run it itself, on
	 * another CPU.
	 */
	for (int i = 0; i < 10; i++) {
		seen_cpu = -1;
		queue_work(wq, &work);
		flush_workqueue(wq);
		CHECK_EQ(seen_cpu, cpu);
	}
	for (int scope = WQ_AFFN_DFL; scope <= WQ_AFFN_SYSTEM; scope++) {
		attrs->affn_scope = scope;
		cpumask_setall(attrs->cpumask);
		CHECK_EQ(apply_workqueue_attrs(wq, attrs), 0);
	}
	free_workqueue_attrs(attrs);
	free_workqueue_attrs(NULL);
	destroy_workqueue(wq);
}

static void attributes_that_make_no_sense_change_nothing(void)
{
	struct workqueue_struct *wq = alloc_workqueue("bound", WQ_UNBOUND, 4);
	struct workqueue_struct *ordered = alloc_ordered_workqueue("ordered", 0);
	struct workqueue_struct *bh = alloc_workqueue("bh", WQ_BH, 0);
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();

	CHECK_EQ(apply_workqueue_attrs(wq, NULL), -22);
	attrs->nice = 20;
	CHECK_EQ(apply_workqueue_attrs(wq, attrs), -22);
	attrs->nice = 1000;
	CHECK_EQ(apply_workqueue_attrs(wq, attrs), -22);
	attrs->nice = 0;
	attrs->affn_scope = 77;
	CHECK_EQ(apply_workqueue_attrs(wq, attrs), -22);
	attrs->affn_scope = WQ_AFFN_CPU;
	CHECK_EQ(apply_workqueue_attrs(ordered, attrs), -22);
	attrs->affn_scope = WQ_AFFN_DFL;
	CHECK_EQ(apply_workqueue_attrs(bh, attrs), -22);
	cpumask_clear(attrs->cpumask);
	CHECK_EQ(apply_workqueue_attrs(wq, attrs), -22);
	free_workqueue_attrs(attrs);
	destroy_workqueue(wq);
	destroy_workqueue(ordered);
	destroy_workqueue(bh);
}

static void set_of_cpus_contains_the_added_ones(void)
{
	struct cpumask one, other;

	cpumask_clear(&one);
	cpumask_set_cpu(3, &one);
	cpumask_set_cpu(1023, &one);
	cpumask_set_cpu(5000, &one);
	cpumask_copy(&other, &one);
	cpumask_clear_cpu(3, &other);
	CHECK(cpumask_test_cpu(3, &one) && cpumask_test_cpu(1023, &other));
	CHECK(!cpumask_test_cpu(3, &other) && !cpumask_test_cpu(5000, &one) && !cpumask_test_cpu(4, &one));
}

/* ---- CPUs and nodes ---- */

static long answer(void *arg)
{
	seen_cpu = sched_getcpu();
	return *(long *)arg + 1;
}

static void a_function_runs_on_a_cpu(void)
{
	unsigned int cpu;
	long arg = 41;

	for_each_online_cpu(cpu) {
		CHECK_EQ(work_on_cpu((int)cpu, answer, &arg), 42);
		CHECK_EQ(seen_cpu, cpu);
	}
}

static int nr_on[1024];

static void count_cpu(struct work_struct *work)
{
	(void)work;
	__atomic_add_fetch(&nr_on[sched_getcpu()], 1, __ATOMIC_RELAXED);
}

static void a_function_runs_once_on_each_cpu(void)
{
	cpu_set_t allowed;
	unsigned int cpu;

	CHECK_EQ(schedule_on_each_cpu(count_cpu), 0);
	CHECK_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	for_each_online_cpu(cpu)
		CHECK(nr_on[cpu] == 1 || (nr_on[cpu] == 0 && !CPU_ISSET(cpu, &allowed)));
}

static void item_is_queued_on_any_node(void)
{
	struct workqueue_struct *wq = alloc_workqueue("node", WQ_UNBOUND, 4);
	DECLARE_WORK(work, see_cpu);

	for (int node = -1; node < 3; node++) {
		seen_cpu = -1;
		CHECK(queue_work_node(node, wq, &work));
		flush_work(&work);
		CHECK(seen_cpu >= 0);
	}
	CHECK(queue_work_node(1000, wq, &work));
	destroy_workqueue(wq);
}

static void items_are_on_stacks(void)
{
	struct work_struct work;
	struct delayed_work dwork;

	INIT_WORK_ONSTACK(&work, see_cpu);
	INIT_DELAYED_WORK_ONSTACK(&dwork, see_cpu);
	CHECK(schedule_work(&work) && schedule_delayed_work(&dwork, 1));
	CHECK(to_delayed_work(&dwork.work) == &dwork);
	flush_work(&work);
	flush_delayed_work(&dwork);
	destroy_work_on_stack(&work);
	destroy_delayed_work_on_stack(&dwork);
}

/* ---- RCU ---- */

struct node {
	long value;
	struct rcu_head rcu;
	char rest[40];
};

static struct node *published;

static void object_with_head_is_freed_after_a_grace_period(void)
{
	struct node *none = NULL;

	kfree_rcu(none, rcu);
	for (int i = 0; i < 100; i++) {
		struct node *fresh = malloc(sizeof(*fresh)), *old;

		if (!fresh)
			abort();
		fresh->value = i;
		old = rcu_replace_pointer(published, fresh, true);
		rcu_read_lock();
		CHECK_EQ(rcu_dereference(published)->value, i);
		if (old) {
			kfree_rcu(old, rcu);
			CHECK_EQ(old->value, i - 1);
		}
		rcu_read_unlock();
	}
	kvfree_rcu(published, rcu);
	rcu_barrier();
}

static void object_without_head_is_freed_by_the_waiter(void)
{
	long *number = malloc(sizeof(*number));

	kfree_rcu_mightsleep(number);
	number = NULL;
	kvfree_rcu_mightsleep(number);
}

static void completed_cookie_has_ended(void)
{
	unsigned long cookie = get_completed_synchronize_rcu(), other;

	CHECK(poll_state_synchronize_rcu(cookie));
	cond_synchronize_rcu(cookie);
	other = get_state_synchronize_rcu();
	CHECK(same_state_synchronize_rcu(other, other));
	synchronize_rcu();
	CHECK(poll_state_synchronize_rcu(cookie) && poll_state_synchronize_rcu(other));
}

static void heads_need_no_layout(void)
{
	struct node *node = malloc(sizeof(*node));

	init_rcu_head(&node->rcu);
	destroy_rcu_head(&node->rcu);
	kfree_rcu(node, rcu);
	rcu_barrier();
}

DEFINE_STATIC_SRCU(domain);

static void cookie_of_a_domain_ends_after_its_grace_period(void)
{
	unsigned long cookie;
	int idx = srcu_down_read(&domain);

	cookie = start_poll_synchronize_srcu(&domain);
	CHECK(!poll_state_synchronize_srcu(&domain, cookie));
	srcu_up_read(&domain, idx);
	/* If the library's thread could not be created, the next call tries again. */
	while (!poll_state_synchronize_srcu(&domain, cookie)) {
		(void)start_poll_synchronize_srcu(&domain);
		usleep(500);
	}
	cookie = get_state_synchronize_srcu(&domain);
	CHECK(!poll_state_synchronize_srcu(&domain, cookie));
	synchronize_srcu(&domain);
	CHECK(poll_state_synchronize_srcu(&domain, cookie));
}

/* ---- words of an item and of a head ---- */

static bool is_pending_by_its_bit(struct work_struct *work)
{
	const unsigned long *bits = work_data_bits(work);

	return __atomic_load_n(bits, __ATOMIC_ACQUIRE) >> WORK_STRUCT_PENDING_BIT & 1;
}

static void pending_bit_of_an_item_is_visible(void)
{
	struct removal it = { .nr_runs = 0 };
	struct delayed_work dwork;

	INIT_DELAYED_WORK(&dwork, see_cpu);
	CHECK(!is_pending_by_its_bit(&dwork.work));
	CHECK(schedule_delayed_work(&dwork, 1000000));
	CHECK(is_pending_by_its_bit(&dwork.work));
	CHECK(mod_delayed_work(system_wq, &dwork, 2000000));
	CHECK(is_pending_by_its_bit(&dwork.work));
	CHECK(cancel_delayed_work_sync(&dwork));
	CHECK(!is_pending_by_its_bit(&dwork.work));
	INIT_RCU_WORK(&it.rwork, remove_it);
	rcu_read_lock();
	CHECK(queue_rcu_work(system_wq, &it.rwork));
	CHECK(is_pending_by_its_bit(&it.rwork.work));
	rcu_read_unlock();
	flush_rcu_work(&it.rwork);
	CHECK(!is_pending_by_its_bit(&it.rwork.work));
}

static void do_nothing(struct rcu_head *head) { (void)head; }

static void a_head_shows_whether_it_was_passed_to_call_rcu(void)
{
	struct rcu_head head;
	int idx;

	head.next = NULL;
	rcu_head_init(&head);
	CHECK(!rcu_head_after_call_rcu(&head, do_nothing));
	rcu_read_lock();
	call_rcu(&head, do_nothing);
	CHECK(rcu_head_after_call_rcu(&head, do_nothing));
	rcu_read_unlock();
	rcu_barrier();
	rcu_head_init(&head);
	idx = srcu_read_lock(&domain);
	call_srcu(&domain, &head, do_nothing);
	CHECK(rcu_head_after_call_rcu(&head, do_nothing));
	srcu_read_unlock(&domain, idx);
	srcu_barrier(&domain);
}

static void nr_unfinished_cookies_is_bounded_as_documented(void)
{
	unsigned long cookies[NUM_ACTIVE_RCU_POLL_OLDSTATE];
	int nr_kept = 0;

	/* A new cookie replaces a stored one whose grace period is over. */
	for (int i = 0; i < 20000; i++) {
		unsigned long cookie = i % 2 ? get_state_synchronize_rcu() : start_poll_synchronize_rcu();
		int nth = 0;

		while (nth < nr_kept && !same_state_synchronize_rcu(cookies[nth], cookie))
			nth++;
		if (nth < nr_kept)
			continue;
		for (nth = 0; nth < nr_kept && !poll_state_synchronize_rcu(cookies[nth]); nth++)
			;
		CHECK(nth < NUM_ACTIVE_RCU_POLL_OLDSTATE);
		if (nth == NUM_ACTIVE_RCU_POLL_OLDSTATE)
			return;
		cookies[nth] = cookie;
		nr_kept += nth == nr_kept;
	}
}

static void default_limits_are_named(void)
{
	CHECK_EQ(WQ_UNBOUND_MAX_ACTIVE, WQ_MAX_ACTIVE);
	CHECK_EQ(WQ_DFL_ACTIVE, WQ_MAX_ACTIVE / 2);
}

/* ---- descriptions of workers ---- */

static char described[2][16];
static pthread_t describer, seer;

static void describe(struct work_struct *work)
{
	(void)work;
	describer = pthread_self();
	pthread_getname_np(describer, described[0], sizeof(described[0]));
	set_worker_desc("%s-%d", "flush", 7);
	pthread_getname_np(describer, described[1], sizeof(described[1]));
	set_worker_desc("x");
}

static void see_description(struct work_struct *work)
{
	(void)work;
	seer = pthread_self();
	pthread_getname_np(seer, described[1], sizeof(described[1]));
}

static void a_worker_is_described_until_the_item_ends(void)
{
	struct workqueue_struct *wq = alloc_ordered_workqueue("described", 0);
	char before[16], after[16];
	int nr_same = 0;
	DECLARE_WORK(first, describe);
	DECLARE_WORK(second, see_description);

	queue_work(wq, &first);
	flush_workqueue(wq);
	CHECK(strncmp(described[0], described[1], strlen(described[0])) == 0);
	CHECK(strncmp(described[1] + strlen(described[0]), "-flush-7", 15 - strlen(described[0])) == 0);
	destroy_workqueue(wq);
	/* The item runs on a worker, or on this thread, which helps. */
	wq = alloc_workqueue("helped", WQ_UNBOUND, 1);
	pthread_getname_np(pthread_self(), before, sizeof(before));
	for (int i = 0; i < 50; i++) {
		queue_work(wq, &first);
		flush_work(&first);
		pthread_getname_np(pthread_self(), after, sizeof(after));
		CHECK(strcmp(before, after) == 0);
	}
	/*
	 * If an item has described its worker, the worker has its original name again when it runs
	 * the next item.
	 */
	for (int i = 0; i < 10000 && nr_same < 50; i++) {
		queue_work(wq, &first);
		flush_workqueue(wq);
		queue_work(wq, &second);
		flush_workqueue(wq);
		/* Another worker or this thread may run the next item. */
		if (!pthread_equal(describer, seer) || pthread_equal(describer, pthread_self()))
			continue;
		nr_same++;
		CHECK(strchr(described[1], '-') == NULL);
	}
#ifndef REFUSES
	CHECK(nr_same > 0);
#endif
	set_worker_desc("nothing");
	pthread_getname_np(pthread_self(), after, sizeof(after));
	CHECK(strcmp(before, after) == 0);
	destroy_workqueue(wq);
}

#define T(name) { #name, name }
const struct test names_tests[] = {
	T(pending_bit_of_an_item_is_visible),
	T(a_head_shows_whether_it_was_passed_to_call_rcu),
	T(nr_unfinished_cookies_is_bounded_as_documented),
	T(default_limits_are_named),
	T(a_worker_is_described_until_the_item_ends),
	T(an_item_waits_for_a_grace_period),
	T(it_is_queued_again_and_again),
	T(a_queue_waits_for_grace_periods_when_it_ends),
	T(item_disabled_at_the_same_time_does_not_run),
	T(a_queue_keeps_to_the_cpus_of_its_attributes),
	T(attributes_that_make_no_sense_change_nothing),
	T(set_of_cpus_contains_the_added_ones),
	T(a_function_runs_on_a_cpu),
	T(a_function_runs_once_on_each_cpu),
	T(item_is_queued_on_any_node),
	T(items_are_on_stacks),
	T(object_with_head_is_freed_after_a_grace_period),
	T(object_without_head_is_freed_by_the_waiter),
	T(completed_cookie_has_ended),
	T(heads_need_no_layout),
	T(cookie_of_a_domain_ends_after_its_grace_period),
	{ NULL, NULL },
};
