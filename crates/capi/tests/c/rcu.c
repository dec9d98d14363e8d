/* Read-copy-update. */
#include "check.h"

#include <afterwork/rcupdate.h>
#include <afterwork/workqueue.h>

struct node {
	long value, twice;
	struct node *next;
	struct rcu_head rcu;
};

static int nr_reclaimed;

static void reclaim(struct rcu_head *head)
{
	struct node *node = container_of(head, struct node, rcu);

	/* A reader that still used the node would see this. */
	node->value = node->twice = -1;
	free(node);
	__atomic_fetch_add(&nr_reclaimed, 1, __ATOMIC_RELAXED);
}

static struct node *new_node(long value)
{
	struct node *node = calloc(1, sizeof(*node));

	if (!node)
		abort();
	node->value = value;
	node->twice = 2 * value;
	return node;
}

static void sections_nest(void)
{
	CHECK(!rcu_read_lock_held());
	rcu_read_lock();
	rcu_read_lock();
	rcu_read_unlock();
	CHECK(rcu_read_lock_held());
	rcu_read_unlock();
	CHECK(!rcu_read_lock_held());
}

static void a_grace_period_without_readers_ends(void)
{
	synchronize_rcu();
	synchronize_rcu_expedited();
}

static void callbacks_have_run_after_a_barrier(void)
{
	nr_reclaimed = 0;
	for (int i = 0; i < 1000; i++)
		call_rcu(&new_node(i)->rcu, reclaim);
	call_rcu_hurry(&new_node(0)->rcu, reclaim);
	rcu_barrier();
	CHECK_EQ(nr_reclaimed, 1001);
}

static void callback_is_added_inside_a_section(void)
{
	nr_reclaimed = 0;
	rcu_read_lock();
	call_rcu(&new_node(1)->rcu, reclaim);
	CHECK_EQ(nr_reclaimed, 0);
	rcu_read_unlock();
	rcu_barrier();
	CHECK_EQ(nr_reclaimed, 1);
}

static void full_list_rejects_a_callback(void)
{
	struct node *node;
	int nr = 0;

	rcu_barrier();
	nr_reclaimed = 0;
	rcu_read_lock();
	while (node = new_node(nr), nr < 1000000 && try_call_rcu(&node->rcu, reclaim))
		nr++;
	free(node);
	rcu_read_unlock();
	rcu_barrier();
	/* The default of rcu.qhimark is 10000. The limit applies to each CPU, and may be reached twice. */
	CHECK(nr >= 10000 && nr < 1000000);
	CHECK_EQ(nr_reclaimed, nr);
}

static void again(struct rcu_head *head)
{
	call_rcu(head, reclaim);
}

static void callback_may_add_itself_again(void)
{
	nr_reclaimed = 0;
	call_rcu(&new_node(1)->rcu, again);
	rcu_barrier();
	rcu_barrier();
	CHECK_EQ(nr_reclaimed, 1);
}

static void pointers_are_published(void)
{
	struct node one = { .value = 1 }, other = { .value = 2 };
	struct node *__rcu shared = NULL;

	RCU_INIT_POINTER(shared, NULL);
	CHECK(!rcu_access_pointer(shared));
	rcu_assign_pointer(shared, &one);
	rcu_read_lock();
	CHECK(rcu_dereference(shared) == &one);
	CHECK(rcu_dereference_check(shared, 1) == &one);
	rcu_read_unlock();
	CHECK(rcu_replace_pointer(shared, &other, 1) == &one);
	CHECK(rcu_dereference_protected(shared, 1) == &other);
}

static void cookie_ends_after_a_grace_period(void)
{
	unsigned long cookie = get_state_synchronize_rcu();

	synchronize_rcu();
	CHECK(poll_state_synchronize_rcu(cookie));
	cookie = get_state_synchronize_rcu();
	cond_synchronize_rcu(cookie);
	CHECK(poll_state_synchronize_rcu(cookie));
}

struct reading {
	sem_t inside, leave;
};

static void *read_until_stopped(void *data)
{
	struct reading *reading = data;

	rcu_read_lock();
	sem_post(&reading->inside);
	gate_wait(&reading->leave);
	rcu_read_unlock();
	return NULL;
}

static void cookie_waits_for_an_earlier_reader(void)
{
	struct reading reading;
	unsigned long cookie;
	pthread_t thread;

	gate_init(&reading.inside);
	gate_init(&reading.leave);
	pthread_create(&thread, NULL, read_until_stopped, &reading);
	gate_wait(&reading.inside);
	cookie = start_poll_synchronize_rcu();
	CHECK(!poll_state_synchronize_rcu(cookie));
	sem_post(&reading.leave);
	cond_synchronize_rcu(cookie);
	CHECK(poll_state_synchronize_rcu(cookie));
	pthread_join(thread, NULL);
}

static struct node *shared;
static int stop;

static void *read_on(void *data)
{
	long *nr_bad = data;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct node *node;

		rcu_read_lock();
		node = rcu_dereference(shared);
		*nr_bad += node->twice != 2 * node->value || node->value < 0;
		rcu_read_unlock();
	}
	return NULL;
}

static void readers_never_see_freed_memory(void)
{
	pthread_t threads[3];
	long nr_bad[3] = { 0, 0, 0 };

	nr_reclaimed = 0;
	stop = 0;
	rcu_assign_pointer(shared, new_node(0));
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, read_on, &nr_bad[i]);
	for (int i = 1; i <= 500; i++) {
		struct node *old = rcu_replace_pointer(shared, new_node(i), 1);

		if (i % 10) {
			call_rcu(&old->rcu, reclaim);
		} else {
			synchronize_rcu();
			reclaim(&old->rcu);
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		CHECK_EQ(nr_bad[i], 0);
	}
	call_rcu(&rcu_replace_pointer(shared, NULL, 1)->rcu, reclaim);
	rcu_barrier();
	CHECK_EQ(nr_reclaimed, 501);
}

static void wait_for_a_grace_period(struct work_struct *work)
{
	(void)work;
	rcu_read_lock();
	rcu_read_unlock();
	synchronize_rcu();
}

static void an_item_may_wait_for_a_grace_period(void)
{
	struct work_struct work;

	INIT_WORK(&work, wait_for_a_grace_period);
	schedule_work(&work);
	flush_work(&work);
}

static void head_has_the_documented_size(void)
{
	CHECK_EQ(sizeof(struct rcu_head), 16);
}

#define T(name) { #name, name }
const struct test rcu_tests[] = {
	T(sections_nest),
	T(a_grace_period_without_readers_ends),
	T(callbacks_have_run_after_a_barrier),
	T(callback_is_added_inside_a_section),
	T(full_list_rejects_a_callback),
	T(callback_may_add_itself_again),
	T(pointers_are_published),
	T(cookie_ends_after_a_grace_period),
	T(cookie_waits_for_an_earlier_reader),
	T(readers_never_see_freed_memory),
	T(an_item_may_wait_for_a_grace_period),
	T(head_has_the_documented_size),
	{ NULL, NULL },
};
