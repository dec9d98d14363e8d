/* A program that is compiled and linked with liburcu, and calls its read side. */
#define _GNU_SOURCE
#include <urcu.h>

#include <urcu/rculfhash.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR_CHANGES 1000

struct node {
	struct cds_lfht_node link;
	struct rcu_head head;
	unsigned long is_alive;
};

static struct node *shared;
static int is_over, nr_freed, nr_wrong;

static void *look(void *unused)
{
	(void)unused;
	rcu_register_thread();
	while (!uatomic_read(&is_over)) {
		rcu_read_lock();
		if (uatomic_read(&rcu_dereference(shared)->is_alive) != 1)
			uatomic_inc(&nr_wrong);
		rcu_read_unlock();
	}
	rcu_unregister_thread();
	return NULL;
}

static void drop(struct rcu_head *head)
{
	struct node *node = caa_container_of(head, struct node, head);

	uatomic_set(&node->is_alive, 0);
	uatomic_inc(&nr_freed);
	free(node);
}

static struct node *new_node(void)
{
	struct node *node = calloc(1, sizeof(*node));

	node->is_alive = 1;
	return node;
}

/*
 * Looks the functions up by name, because the installed headers may be older. Checks that a grace
 * period does not end inside a section, and ends after it.
 */
static bool polls(void)
{
	struct state {
		unsigned long id;
	} (*start)(void), state;
	bool (*is_over)(struct state);

	*(void **)&start = dlsym(RTLD_DEFAULT, "urcu_memb_start_poll_synchronize_rcu");
	*(void **)&is_over = dlsym(RTLD_DEFAULT, "urcu_memb_poll_state_synchronize_rcu");
	if (!start || !is_over)
		return false;
	rcu_read_lock();
	state = start();
	if (is_over(state))
		return false;
	rcu_read_unlock();
	while (!is_over(state))
		sched_yield();
	return true;
}

/* Looks the function up by name, as above, and checks that it loads the pointer. */
static bool loads(void)
{
	void *(*load)(void **place);

	*(void **)&load = dlsym(RTLD_DEFAULT, "rcu_dereference_sym2");
	return load && load((void **)&shared) == shared;
}

/* Prints the file of the library that provides the symbols. */
static void print_owner(void)
{
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "liburcu-memb"))
			printf("%s", strchr(line, '/'));
	if (maps)
		fclose(maps);
}

int main(void)
{
	pthread_t readers[2];
	struct cds_lfht *table;

	rcu_register_thread();
	shared = new_node();
	for (int i = 0; i < 2; i++)
		pthread_create(&readers[i], NULL, look, NULL);
	for (int i = 0; i < NR_CHANGES; i++) {
		struct node *old = rcu_xchg_pointer(&shared, new_node());

		if (i % 2) {
			call_rcu(&old->head, drop);
		} else {
			synchronize_rcu();
			drop(&old->head);
		}
	}
	uatomic_set(&is_over, 1);
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	table = cds_lfht_new_flavor(64, 64, 0, CDS_LFHT_AUTO_RESIZE, &urcu_memb_flavor, NULL);
	rcu_read_lock();
	cds_lfht_add(table, 17, &shared->link);
	cds_lfht_del(table, &shared->link);
	rcu_read_unlock();
	cds_lfht_destroy(table, NULL);
	call_rcu(&shared->head, drop);
	rcu_barrier();
	rcu_unregister_thread();
	if (!polls() || !loads())
		nr_wrong++;
	print_owner();
	printf("%d freed, %d wrong\n", nr_freed, nr_wrong);
	return nr_wrong || nr_freed != NR_CHANGES + 1;
}
