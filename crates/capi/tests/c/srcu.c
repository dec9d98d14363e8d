/* Sleepable read-copy-update. */
#include "check.h"

#include <afterwork/srcu.h>

DEFINE_STATIC_SRCU(lazy);

static void domain_is_created_and_destroyed(void)
{
	struct srcu_struct domain;

	CHECK_EQ(init_srcu_struct(&domain), 0);
	synchronize_srcu(&domain);
	synchronize_srcu_expedited(&domain);
	cleanup_srcu_struct(&domain);
	cleanup_srcu_struct(&domain);
	cleanup_srcu_struct(NULL);
}

static void *use_lazy(void *data)
{
	int idx = srcu_read_lock(&lazy);

	srcu_read_unlock(&lazy, idx);
	return data;
}

static void threads_use_a_new_static_domain_at_once(void)
{
	pthread_t threads[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&threads[i], NULL, use_lazy, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	synchronize_srcu(&lazy);
}

static void sections_of_domains_nest(void)
{
	struct srcu_struct domain;
	int outer, inner, other;

	init_srcu_struct(&domain);
	outer = srcu_read_lock(&domain);
	inner = srcu_read_lock(&domain);
	other = srcu_read_lock(&lazy);
	srcu_read_unlock(&domain, outer);
	srcu_read_unlock(&lazy, other);
	/* A reader of one domain does not delay any other domain. */
	synchronize_srcu(&lazy);
	srcu_read_unlock(&domain, inner);
	synchronize_srcu(&domain);
	cleanup_srcu_struct(&domain);
}

struct section {
	struct srcu_struct *domain;
	int idx;
};

static void *end_section(void *data)
{
	struct section *section = data;

	srcu_read_unlock(section->domain, section->idx);
	return NULL;
}

static void a_section_ends_on_another_thread(void)
{
	struct section section = { .domain = &lazy };
	pthread_t thread;

	section.idx = srcu_read_lock(&lazy);
	pthread_create(&thread, NULL, end_section, &section);
	synchronize_srcu(&lazy);
	pthread_join(thread, NULL);
}

static int nr_called;

static void count_call(struct rcu_head *head)
{
	free(head);
	__atomic_fetch_add(&nr_called, 1, __ATOMIC_RELAXED);
}

static void callbacks_of_a_domain_have_run_after_its_barrier(void)
{
	nr_called = 0;
	for (int i = 0; i < 100; i++) {
		struct rcu_head *head = malloc(sizeof(*head));

		if (!head)
			abort();
		call_srcu(&lazy, head, count_call);
	}
	srcu_barrier(&lazy);
	CHECK_EQ(nr_called, 100);
}

static sem_t has_run;

static void notify_call(struct rcu_head *head)
{
	(void)head;
	sem_post(&has_run);
}

static void callbacks_of_a_domain_run_despite_its_end(void)
{
	struct srcu_struct domain;
	struct rcu_head head;

	gate_init(&has_run);
	CHECK_EQ(init_srcu_struct(&domain), 0);
	call_srcu(&domain, &head, notify_call);
	cleanup_srcu_struct(&domain);
	memset(&domain, 0xa5, sizeof(domain));
	gate_wait(&has_run);
}

#define T(name) { #name, name }
const struct test srcu_tests[] = {
	T(domain_is_created_and_destroyed),
	T(threads_use_a_new_static_domain_at_once),
	T(sections_of_domains_nest),
	T(a_section_ends_on_another_thread),
	T(callbacks_of_a_domain_have_run_after_its_barrier),
	T(callbacks_of_a_domain_run_despite_its_end),
	{ NULL, NULL },
};
