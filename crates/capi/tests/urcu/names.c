/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tests names of liburcu that no flavor needs: names that end with the flavor, names that begin
 * with an underscore, and functions. Also tests two flavors in alternation.
 */
#include <urcu/urcu-memb.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-bp.h>
#include <urcu/urcu-qsbr.h>
#include <urcu/urcu-signal.h>
#include <urcu-pointer.h>

#include <stdio.h>

struct item {
	int value;
	struct rcu_head head;
};

static struct item *shared;
static int nr_freed;

static void free_item(struct rcu_head *head)
{
	free(caa_container_of(head, struct item, head));
	nr_freed++;
}

static struct item *new_item(int value)
{
	struct item *item = (struct item *)malloc(sizeof(*item));

	if (!item)
		abort();
	item->value = value;
	return item;
}

static void must(int holds, const char *what, int line)
{
	if (!holds) {
		fprintf(stderr, "line %d: %s\n", line, what);
		abort();
	}
}
#define MUST(cond) must(!!(cond), #cond, __LINE__)

/* Performs one update and one read, with the names from before liburcu 0.11. */
#define BY_OLDER_NAMES(flavor)                                                       \
	static void by_names_of_##flavor(void)                                       \
	{                                                                            \
		struct item *old;                                                    \
		int before = nr_freed;                                               \
		rcu_init_##flavor();                                                 \
		rcu_register_thread_##flavor();                                      \
		rcu_set_pointer_##flavor(&shared, new_item(1));                      \
		rcu_read_lock_##flavor();                                            \
		_rcu_read_lock_##flavor();                                           \
		MUST(rcu_read_ongoing_##flavor() && _rcu_read_ongoing_##flavor());   \
		MUST(rcu_dereference_##flavor(shared)->value == 1);                  \
		_rcu_read_unlock_##flavor();                                         \
		rcu_read_unlock_##flavor();                                          \
		old = rcu_xchg_pointer_##flavor(&shared, new_item(2));               \
		call_rcu_##flavor(&old->head, free_item);                            \
		synchronize_rcu_##flavor();                                          \
		rcu_barrier_##flavor();                                              \
		MUST(nr_freed == before + 1);                                        \
		old = rcu_cmpxchg_pointer_##flavor(&shared, shared, (struct item *)NULL); \
		MUST(old->value == 2 && !shared);                                    \
		MUST(!rcu_defer_register_thread_##flavor());                         \
		defer_rcu_##flavor(free, old);                                       \
		rcu_defer_barrier_thread_##flavor();                                 \
		rcu_defer_unregister_thread_##flavor();                              \
		MUST(rcu_flavor_##flavor.update_call_rcu != NULL);                   \
		MUST(get_call_rcu_data_##flavor() != NULL);                          \
		rcu_unregister_thread_##flavor();                                    \
	}

BY_OLDER_NAMES(memb)
BY_OLDER_NAMES(mb)
BY_OLDER_NAMES(sig)
BY_OLDER_NAMES(bp)
BY_OLDER_NAMES(qsbr)

static void with_a_previous_line(void)
{
	_urcu_memb_read_lock();
	_urcu_mb_read_lock();
	_urcu_bp_read_lock();
	MUST(_urcu_signal_read_ongoing());
	_urcu_bp_read_unlock();
	_urcu_mb_read_unlock();
	_urcu_memb_read_unlock();
	MUST(!_urcu_memb_read_ongoing());
}

static void by_functions(void)
{
	int one = 1, two = 2;
	void *place = NULL;

	MUST(rcu_set_pointer_sym(&place, &one) == &one);
	MUST(rcu_dereference_sym(place) == &one);
	MUST(rcu_dereference_sym2(&place) == &one);
	MUST(rcu_xchg_pointer_sym(&place, &two) == &one);
	MUST(rcu_cmpxchg_pointer_sym(&place, &one, NULL) == &two && place == &two);
	MUST(rcu_cmpxchg_pointer_sym(&place, &two, NULL) == &two && !place);
}

/* The common names are mapped to one flavor, and then to the other. */
#define URCU_API_MAP
#include <urcu/urcu-memb.h>

static void by_names_of_the_first(void)
{
	rcu_read_lock();
	MUST(urcu_memb_read_ongoing() && !urcu_qsbr_read_ongoing());
	rcu_read_unlock();
}

#include <urcu/map/clear.h>
#ifdef rcu_read_lock
#error "it is still there"
#endif
#include <urcu/urcu-qsbr.h>

static void by_names_of_the_second(void)
{
	rcu_register_thread();
	rcu_read_lock();
	MUST(urcu_qsbr_read_ongoing());
	rcu_read_unlock();
	rcu_quiescent_state();
	rcu_unregister_thread();
}

int main(void)
{
	by_names_of_memb();
	by_names_of_mb();
	by_names_of_sig();
	by_names_of_bp();
	by_names_of_qsbr();
	with_a_previous_line();
	by_functions();
	by_names_of_the_first();
	by_names_of_the_second();
	return 0;
}
