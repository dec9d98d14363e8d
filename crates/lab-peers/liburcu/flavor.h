/*
 * The functions of a flavor of liburcu, and their table. Each flavor includes this once, after its
 * own header, and names the table with AW_FLAVOR.
 */
#include <stdint.h>
#include <stdlib.h>

/* Reads the value to which *place points, count times, each time in its own section. */
static uint64_t read_numbers(uint64_t *const *place, size_t count)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		rcu_read_lock();
		sum += *rcu_dereference(*place);
		rcu_read_unlock();
	}
	rcu_quiescent_state();
	return sum;
}

typedef uint64_t aw_look(const void *value, size_t turn);

/* Does the same for a value that only look() can read. */
static uint64_t read_values(void *const *place, size_t count, aw_look *look)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++) {
		rcu_read_lock();
		sum += look(rcu_dereference(*place), i);
		rcu_read_unlock();
	}
	rcu_quiescent_state();
	return sum;
}

struct aw_call {
	struct rcu_head head;
	uint64_t *counter;
};

static void count_call(struct rcu_head *head)
{
	struct aw_call *call = caa_container_of(head, struct aw_call, head);

	__atomic_fetch_add(call->counter, 1, __ATOMIC_RELEASE);
	free(call);
}

/* Queues count callbacks, each of which adds one to *counter. The thread must be registered. */
static int call(uint64_t *counter, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct aw_call *call = malloc(sizeof(*call));

		if (!call)
			return -1;
		call->counter = counter;
		call_rcu(&call->head, count_call);
	}
	return 0;
}

/* The fields of `Functions` in src/reclaim/urcu.rs. */
const struct {
	void (*register_thread)(void);
	void (*unregister_thread)(void);
	void (*offline)(void);
	void (*online)(void);
	void (*synchronize)(void);
	void (*barrier)(void);
	uint64_t (*read)(uint64_t *const *place, size_t count);
	uint64_t (*look)(void *const *place, size_t count, aw_look *look);
	int (*call)(uint64_t *counter, size_t count);
} AW_FLAVOR = {
	rcu_register_thread, rcu_unregister_thread, rcu_thread_offline, rcu_thread_online,
	synchronize_rcu, rcu_barrier, read_numbers, read_values, call,
};
