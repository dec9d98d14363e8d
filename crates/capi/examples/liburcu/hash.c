/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * liburcu's lock-free hash table over afterwork: threads look up, add and remove sessions.
 *
 * The table comes from liburcu-cds, which is in Debian's liburcu-dev. The flavor that the program
 * passes to it makes it use afterwork's RCU. No other part of liburcu is linked:
 *
 *     cc hash.c $(pkg-config --cflags --libs afterwork) -lurcu-cds
 */
#include <afterwork/urcu.h>

#include <urcu/rculfhash.h>

#include <stdio.h>

#define NR_SESSIONS 512
#define NR_ROUNDS 16
#define NR_READERS 2

struct session {
	struct cds_lfht_node node;
	struct rcu_head head;
	unsigned long id;
	unsigned long nr_requests;
};

static struct cds_lfht *sessions;
static unsigned long nr_found, nr_freed;
static int is_over;

/* Spreads consecutive numbers over the table. */
static unsigned long hash(unsigned long id)
{
	return id * 0x9e3779b97f4a7c15UL;
}

static int has_id(struct cds_lfht_node *node, const void *id)
{
	return caa_container_of(node, struct session, node)->id == *(const unsigned long *)id;
}

static void free_session(struct rcu_head *head)
{
	__atomic_fetch_add(&nr_freed, 1, __ATOMIC_RELAXED);
	free(caa_container_of(head, struct session, head));
}

/* Looks up a session and counts a request to it. Returns 0 if there is none. */
static int request(unsigned long id)
{
	struct cds_lfht_iter found;
	struct cds_lfht_node *node;

	rcu_read_lock();
	cds_lfht_lookup(sessions, hash(id), has_id, &id, &found);
	node = cds_lfht_iter_get_node(&found);
	if (node)
		uatomic_inc(&caa_container_of(node, struct session, node)->nr_requests);
	rcu_read_unlock();
	return node != NULL;
}

static void *serve(void *unused)
{
	unsigned long id = 0, found = 0;

	(void)unused;
	/* liburcu's table requires this call. */
	rcu_register_thread();
	while (!CMM_LOAD_SHARED(is_over))
		found += (unsigned long)request(id++ % (2 * NR_SESSIONS));
	rcu_unregister_thread();
	__atomic_fetch_add(&nr_found, found, __ATOMIC_RELAXED);
	return NULL;
}

static int begin(unsigned long id)
{
	struct session *session = calloc(1, sizeof(*session));
	struct cds_lfht_node *node;

	if (!session)
		return 0;
	session->id = id;
	rcu_read_lock();
	node = cds_lfht_add_unique(sessions, hash(id), has_id, &session->id, &session->node);
	rcu_read_unlock();
	if (node != &session->node)
		free(session);
	return node == &session->node;
}

static int end(unsigned long id)
{
	struct cds_lfht_iter found;
	struct cds_lfht_node *node;
	int was_there;

	rcu_read_lock();
	cds_lfht_lookup(sessions, hash(id), has_id, &id, &found);
	node = cds_lfht_iter_get_node(&found);
	was_there = node && cds_lfht_del(sessions, node) == 0;
	rcu_read_unlock();
	if (was_there)
		call_rcu(&caa_container_of(node, struct session, node)->head, free_session);
	return was_there;
}

int main(void)
{
	unsigned long nr_begun = 0, nr_ended = 0;
	pthread_t readers[NR_READERS];

	rcu_register_thread();
	/* The table grows on a thread of its own, which registers itself with the flavor. */
	sessions = cds_lfht_new_flavor(1, 1, 0, CDS_LFHT_AUTO_RESIZE | CDS_LFHT_ACCOUNTING, &rcu_flavor, NULL);
	if (!sessions)
		return 1;
	for (int i = 0; i < NR_READERS; i++)
		if (pthread_create(&readers[i], NULL, serve, NULL) != 0)
			return 1;
	for (int round = 0; round < NR_ROUNDS; round++) {
		for (unsigned long id = 0; id < NR_SESSIONS; id++)
			nr_begun += (unsigned long)begin(id);
		for (unsigned long id = 0; id < NR_SESSIONS; id++)
			nr_ended += (unsigned long)end(id);
	}
	CMM_STORE_SHARED(is_over, 1);
	for (int i = 0; i < NR_READERS; i++)
		pthread_join(readers[i], NULL);
	if (cds_lfht_destroy(sessions, NULL) != 0)
		return 1;
	rcu_barrier();
	rcu_unregister_thread();
	printf("%lu sessions begun, %lu ended, %lu freed\n", nr_begun, nr_ended, nr_freed);
	return !(nr_begun == NR_ROUNDS * NR_SESSIONS && nr_ended == nr_begun && nr_freed == nr_begun);
}
