/*
 * SRCU in a program that uses liburcu: a head waits for a domain, and then for a grace period of
 * liburcu.
 */
#ifdef SRCU_AFTER
#include <urcu.h>
#endif
#include <afterwork/srcu.h>

#include <stdlib.h>

struct node {
	struct rcu_head head;
	int nr_calls;
};

static struct node *shared;

static void count(struct rcu_head *head)
{
	((struct node *)(void *)head)->nr_calls++;
}

int main(void)
{
	struct node *node = (struct node *)calloc(1, sizeof(*node)), *seen;
	DEFINE_SRCU(domain);
	int idx, nr_calls;

	rcu_register_thread();
	rcu_assign_pointer(shared, node);
	idx = srcu_read_lock(&domain);
	seen = srcu_dereference(shared, &domain);
	srcu_read_unlock(&domain, idx);
	rcu_read_lock();
	seen = seen == rcu_dereference(shared) ? seen : NULL;
	rcu_read_unlock();
	call_srcu(&domain, &node->head, count);
	srcu_barrier(&domain);
	call_rcu(&node->head, count);
	rcu_barrier();
	nr_calls = node->nr_calls;
	cleanup_srcu_struct(&domain);
	rcu_unregister_thread();
	free(node);
	return nr_calls == 2 && seen ? 0 : 1;
}
