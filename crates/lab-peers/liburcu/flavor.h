/*
 * The functions of a flavor of liburcu. Each flavor includes this once, after its own header.
 */
#include <stdint.h>
#include <stdlib.h>

void AW(register)(void) { rcu_register_thread(); }
void AW(unregister)(void) { rcu_unregister_thread(); }
void AW(offline)(void) { rcu_thread_offline(); }
void AW(online)(void) { rcu_thread_online(); }
void AW(synchronize)(void) { synchronize_rcu(); }
void AW(barrier)(void) { rcu_barrier(); }

/* Reads the value to which *place points, count times, each time in its own section. */
uint64_t AW(read)(uint64_t *const *place, size_t count)
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

/* Does the same for a value that only look() can read. */
uint64_t AW(look)(void *const *place, size_t count, uint64_t (*look)(const void *value, size_t turn))
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
int AW(call)(uint64_t *counter, size_t count)
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
