/* Tests liburcu's names, one flavor at a time: SUITE_QSBR, SUITE_BP, RCU_MB, or the default. */
#if defined(SUITE_QSBR)
#define URCU_API_MAP
#include <afterwork/urcu-qsbr.h>
#elif defined(SUITE_BP)
#define URCU_API_MAP
#include <afterwork/urcu-bp.h>
#else
#include <afterwork/urcu.h>
#endif

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#ifdef SUITE_QSBR
#define IS_QSBR 1
#else
#define IS_QSBR 0
#endif
#define NR_READERS 3
#define NR_CHANGES 2000
#define ALIVE 0x11eeUL
#define FREED 0xdeadUL

static int nr_failed;

#define CHECK(cond)                                                                       \
	do {                                                                              \
		if (!(cond)) {                                                            \
			fprintf(stderr, "    %s:%d: %s\n", __func__, __LINE__, #cond);    \
			__atomic_fetch_add(&nr_failed, 1, __ATOMIC_RELAXED);              \
		}                                                                         \
	} while (0)

struct node {
	unsigned long state;
	struct rcu_head head;
	unsigned long mirror;
};

static struct node *shared;
static int is_over;
static unsigned long nr_called;

static struct node *new_node(void)
{
	struct node *node = (struct node *)malloc(sizeof(*node));

	if (!node)
		abort();
	node->state = node->mirror = ALIVE;
	return node;
}

static void poison(struct node *node)
{
	__atomic_store_n(&node->state, FREED, __ATOMIC_RELAXED);
	__atomic_store_n(&node->mirror, FREED, __ATOMIC_RELAXED);
	free(node);
}

static void reclaim(struct rcu_head *head)
{
	__atomic_fetch_add(&nr_called, 1, __ATOMIC_RELAXED);
	poison(caa_container_of(head, struct node, head));
}

static void look(void)
{
	rcu_read_lock();
	{
		struct node *node = _rcu_dereference(shared);

		if (node) {
			CHECK(__atomic_load_n(&node->state, __ATOMIC_RELAXED) == ALIVE);
			rcu_read_lock();
			CHECK(__atomic_load_n(&node->mirror, __ATOMIC_RELAXED) == ALIVE);
			rcu_read_unlock();
		}
	}
	rcu_read_unlock();
}

static void *read_for_long(void *turn)
{
	unsigned long round = 0;

	(void)turn;
	rcu_register_thread();
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
		look();
		rcu_quiescent_state();
		/* Some readers go offline for a while, so that they are parked. */
		if (++round % 1024 == 0) {
			rcu_thread_offline();
			sched_yield();
			rcu_thread_online();
		}
	}
	rcu_unregister_thread();
	return NULL;
}

static void with_readers(void (*change)(void))
{
	pthread_t readers[NR_READERS];

	is_over = 0;
	rcu_set_pointer(&shared, new_node());
	for (int i = 0; i < NR_READERS; i++)
		CHECK(pthread_create(&readers[i], NULL, read_for_long, NULL) == 0);
	for (int i = 0; i < NR_CHANGES; i++)
		change();
	__atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
	rcu_thread_offline();
	for (int i = 0; i < NR_READERS; i++)
		pthread_join(readers[i], NULL);
	rcu_thread_online();
	poison(rcu_xchg_pointer(&shared, NULL));
}

static void change_and_wait(void)
{
	struct node *old = rcu_xchg_pointer(&shared, new_node());

	synchronize_rcu();
	poison(old);
}

static void change_and_call(void)
{
	struct node *old = rcu_xchg_pointer(&shared, new_node());

	call_rcu(&old->head, reclaim);
	rcu_quiescent_state();
}

static void free_node(void *node)
{
	__atomic_fetch_add(&nr_called, 1, __ATOMIC_RELAXED);
	poison((struct node *)node);
}

static void change_and_defer(void)
{
	struct node *seen = rcu_dereference(shared), *next = new_node();

	CHECK(rcu_cmpxchg_pointer(&shared, next, next) == seen);
	CHECK(_rcu_cmpxchg_pointer(&shared, seen, next) == seen);
	defer_rcu(free_node, seen);
	_rcu_quiescent_state();
}

static void readers_never_see_freed_memory(void)
{
	with_readers(change_and_wait);
}

static void callbacks_run_after_readers(void)
{
	nr_called = 0;
	with_readers(change_and_call);
	rcu_barrier();
	CHECK(nr_called == NR_CHANGES);
}

static int in_callback, was_freed_in_callback;

static void read_in_callback(struct rcu_head *head)
{
	struct node *node;

	(void)head;
	rcu_read_lock();
	node = rcu_dereference(shared);
	CHECK(rcu_read_ongoing());
	__atomic_store_n(&in_callback, 1, __ATOMIC_RELEASE);
	usleep(50000);
	CHECK(__atomic_load_n(&node->state, __ATOMIC_RELAXED) == ALIVE);
	CHECK(!__atomic_load_n(&was_freed_in_callback, __ATOMIC_RELAXED));
	rcu_read_unlock();
	rcu_quiescent_state();
	synchronize_rcu();
	rcu_quiescent_state();
}

static void a_callback_may_read(void)
{
	static struct rcu_head head;
	struct node *node = new_node();

	in_callback = was_freed_in_callback = 0;
	rcu_set_pointer(&shared, node);
	call_rcu(&head, read_in_callback);
	rcu_thread_offline();
	while (!__atomic_load_n(&in_callback, __ATOMIC_ACQUIRE))
		sched_yield();
	rcu_thread_online();
	node = rcu_xchg_pointer(&shared, NULL);
	synchronize_rcu();
	__atomic_store_n(&was_freed_in_callback, 1, __ATOMIC_RELAXED);
	/* The memory is still valid, so a failing check does not crash. */
	rcu_barrier();
	poison(node);
}

static void deferred_calls_run_after_readers(void)
{
	nr_called = 0;
	CHECK(rcu_defer_register_thread() == 0);
	with_readers(change_and_defer);
	rcu_defer_barrier_thread();
	CHECK(nr_called == NR_CHANGES);
	rcu_defer_barrier();
	rcu_defer_unregister_thread();
}

static void sections_nest(void)
{
	for (int i = 0; i < 1000; i++)
		rcu_read_lock();
	CHECK(rcu_read_ongoing());
	for (int i = 0; i < 999; i++)
		rcu_read_unlock();
	CHECK(rcu_read_ongoing());
	rcu_read_unlock();
	CHECK(!rcu_read_ongoing() || IS_QSBR);
	synchronize_rcu();
	CHECK(rcu_read_ongoing() == IS_QSBR);
}

static int has_entered, may_leave, has_left;

static void *hold(void *is_parked)
{
	/*
	 * Registering would end the parking, so a parked reader does not register unless qsbr
	 * requires it.
	 */
	if (!is_parked || IS_QSBR)
		rcu_register_thread();
	rcu_read_lock();
	__atomic_store_n(&has_entered, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&may_leave, __ATOMIC_ACQUIRE))
		sched_yield();
	__atomic_store_n(&has_left, 1, __ATOMIC_RELAXED);
	rcu_read_unlock();
	rcu_unregister_thread();
	return NULL;
}

static void a_grace_period_waits_for_a_section(void)
{
	pthread_t holder;
	struct urcu_gp_poll_state state;

	has_entered = may_leave = has_left = 0;
	CHECK(pthread_create(&holder, NULL, hold, NULL) == 0);
	while (!__atomic_load_n(&has_entered, __ATOMIC_ACQUIRE))
		sched_yield();
	state = start_poll_synchronize_rcu();
	rcu_quiescent_state();
	for (int i = 0; i < 100; i++) {
		CHECK(!poll_state_synchronize_rcu(state));
		sched_yield();
	}
	__atomic_store_n(&may_leave, 1, __ATOMIC_RELEASE);
	synchronize_rcu();
	CHECK(__atomic_load_n(&has_left, __ATOMIC_RELAXED));
	CHECK(poll_state_synchronize_rcu(state));
	rcu_thread_offline();
	pthread_join(holder, NULL);
	rcu_thread_online();
}

static void *hold_after_parking(void *unused)
{
	/* The thread gets its slot, inlines a section, and is parked. */
	rcu_register_thread();
	rcu_read_lock();
	rcu_read_unlock();
	rcu_quiescent_state();
	rcu_unregister_thread();
	(void)unused;
	return hold(&is_over);
}

/* A grace period skips a parked thread, so its next section must announce itself. */
static void a_section_of_a_parked_thread_is_waited_for(void)
{
	pthread_t holder;

	has_entered = may_leave = has_left = 0;
	rcu_thread_offline();
	CHECK(pthread_create(&holder, NULL, hold_after_parking, NULL) == 0);
	while (!__atomic_load_n(&has_entered, __ATOMIC_ACQUIRE))
		sched_yield();
	CHECK(!poll_state_synchronize_rcu(start_poll_synchronize_rcu()));
	__atomic_store_n(&may_leave, 1, __ATOMIC_RELEASE);
	synchronize_rcu();
	CHECK(__atomic_load_n(&has_left, __ATOMIC_RELAXED));
	pthread_join(holder, NULL);
	rcu_thread_online();
}

static struct afterwork_slot *asked;
static int is_answered;

static void *answer(void *unused)
{
	(void)unused;
	rcu_register_thread();
	/* The second section and the second report are inlined. */
	for (int i = 0; i < 2; i++) {
		rcu_read_lock();
		if (i == 1) {
			__atomic_store_n(&asked, aw_rcu_reader.slot, __ATOMIC_RELEASE);
			while (!__atomic_load_n(&may_leave, __ATOMIC_ACQUIRE))
				sched_yield();
		}
		rcu_read_unlock();
		rcu_quiescent_state();
	}
	/* From here on, this thread reports only for a second grace period after the current one. */
	while (!__atomic_load_n(&is_answered, __ATOMIC_ACQUIRE)) {
		if (__atomic_load_n(aw_rcu_first_level, __ATOMIC_RELAXED) != aw_rcu_reader.slot->ctr)
			rcu_quiescent_state();
		sched_yield();
	}
	rcu_unregister_thread();
	return NULL;
}

static void *wait_for_all(void *unused)
{
	(void)unused;
	synchronize_rcu();
	return NULL;
}

static void a_driver_that_sleeps_is_woken_by_the_end_of_a_section(void)
{
	pthread_t reader, waiter;
	struct afterwork_slot *slot;

	asked = NULL;
	may_leave = is_answered = 0;
	rcu_thread_offline();
	CHECK(pthread_create(&reader, NULL, answer, NULL) == 0);
	while (!(slot = __atomic_load_n(&asked, __ATOMIC_ACQUIRE)))
		sched_yield();
	CHECK(pthread_create(&waiter, NULL, wait_for_all, NULL) == 0);
	/*
	 * Wait for the second flag, which means that the driver relies on an answer. The stand-in
	 * has no flags.
	 */
	if ((slot->ctr & AFTERWORK_RCU_NEST) != AFTERWORK_RCU_NEST)
		while (!(__atomic_load_n(&slot->flags, __ATOMIC_ACQUIRE) & 2))
			sched_yield();
	__atomic_store_n(&may_leave, 1, __ATOMIC_RELEASE);
	pthread_join(waiter, NULL);
	__atomic_store_n(&is_answered, 1, __ATOMIC_RELEASE);
	pthread_join(reader, NULL);
	rcu_thread_online();
}

static pthread_key_t key;

static void read_late(void *unused)
{
	(void)unused;
	if (!IS_QSBR)
		look();
}

static void *start_and_exit(void *unused)
{
	(void)unused;
	CHECK(pthread_setspecific(key, &key) == 0);
	rcu_register_thread();
	look();
	rcu_unregister_thread();
	if (!IS_QSBR)
		look();
	return NULL;
}

static void threads_start_and_exit(void)
{
	CHECK(pthread_key_create(&key, read_late) == 0);
	rcu_set_pointer(&shared, new_node());
	for (int i = 0; i < 50; i++) {
		pthread_t threads[4];

		for (int j = 0; j < 4; j++)
			CHECK(pthread_create(&threads[j], NULL, start_and_exit, NULL) == 0);
		change_and_wait();
		rcu_thread_offline();
		for (int j = 0; j < 4; j++)
			pthread_join(threads[j], NULL);
		rcu_thread_online();
	}
	poison(rcu_xchg_pointer(&shared, NULL));
	pthread_key_delete(key);
}

static void *end_as_a_reader(void *unused)
{
	(void)unused;
	rcu_register_thread();
	look();
	return NULL;
}

static void thread_that_exits_registered_delays_no_grace_period(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, end_as_a_reader, NULL) == 0);
	rcu_thread_offline();
	pthread_join(thread, NULL);
	rcu_thread_online();
	synchronize_rcu();
}

static void *slot_of_another(void *seen)
{
	rcu_register_thread();
	rcu_read_lock();
	rcu_read_unlock();
	rcu_quiescent_state();
	*(struct afterwork_slot **)seen = aw_rcu_reader.slot;
	rcu_unregister_thread();
	return NULL;
}

/* If the kernel supports membarrier, the read side is inlined from the second section on. */
static void a_thread_has_a_slot_of_its_own(void)
{
	struct afterwork_slot *other = NULL, *mine;
	pthread_t thread;

	rcu_read_lock();
	rcu_read_unlock();
	rcu_quiescent_state();
	mine = aw_rcu_reader.slot;
	CHECK(pthread_create(&thread, NULL, slot_of_another, &other) == 0);
	rcu_thread_offline();
	pthread_join(thread, NULL);
	rcu_thread_online();
	if ((mine->ctr & AFTERWORK_RCU_NEST) != AFTERWORK_RCU_NEST)
		CHECK(mine != other);
	else
		fprintf(stderr, "    membarrier is missing: nothing is inlined\n");
}

static void *call_by_another_layout(void *unused)
{
	struct afterwork_slot *before = aw_rcu_reader.slot;

	(void)unused;
	aw_rcu_lock_slowly(&aw_rcu_reader, AFTERWORK_RCU_LAYOUT + 1);
	CHECK(aw_rcu_reader.slot == before && aw_rcu_read_lock_held());
	afterwork_read_unlock();
	CHECK(aw_rcu_reader.slot == before && !aw_rcu_read_lock_held());
	return NULL;
}

static void a_program_of_another_layout_is_served_by_calls(void)
{
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, call_by_another_layout, NULL) == 0);
	rcu_thread_offline();
	pthread_join(thread, NULL);
	rcu_thread_online();
}

static void helpers_are_released(void)
{
	struct call_rcu_data *helper = create_call_rcu_data(0, -1), *other = create_call_rcu_data(URCU_CALL_RCU_RT, 0);
	struct node *node = new_node();

	CHECK(helper && other && helper != other);
	CHECK(get_thread_call_rcu_data() == NULL && get_call_rcu_data() == get_default_call_rcu_data());
	set_thread_call_rcu_data(helper);
	CHECK(get_thread_call_rcu_data() == helper && get_call_rcu_data() == helper);
	nr_called = 0;
	call_rcu(&node->head, reclaim);
	rcu_barrier();
	CHECK(nr_called == 1);
	set_thread_call_rcu_data(NULL);
	CHECK(set_cpu_call_rcu_data(0, other) == 0 && get_cpu_call_rcu_data(0) == other);
	errno = 0;
	CHECK(set_cpu_call_rcu_data(0, helper) == -EEXIST && errno == EEXIST);
	CHECK(set_cpu_call_rcu_data(-1, helper) == -EINVAL && errno == EINVAL);
	CHECK(get_cpu_call_rcu_data(-1) == NULL);
	CHECK(set_cpu_call_rcu_data(0, NULL) == 0 && get_cpu_call_rcu_data(0) == NULL);
	call_rcu_data_free(helper);
	call_rcu_data_free(other);
	call_rcu_data_free(get_default_call_rcu_data());
	CHECK(create_all_cpu_call_rcu_data(0) == 0 && get_cpu_call_rcu_data(0));
	free_all_cpu_call_rcu_data();
	CHECK(get_cpu_call_rcu_data(0) == NULL);
	CHECK(!pthread_equal(get_call_rcu_thread(get_default_call_rcu_data()), pthread_self()));
}

static int nr_before, nr_parent, nr_child;

static void count_fork(void *counter)
{
	++*(int *)counter;
}

static int in_child(void)
{
	int failed_before = nr_failed;
	struct node *node = new_node();

	look();
	synchronize_rcu();
	nr_called = 0;
	call_rcu(&node->head, reclaim);
	rcu_barrier();
	CHECK(nr_called == 1);
	return nr_failed != failed_before;
}

static void before_fork(void *unused)
{
	(void)unused;
	count_fork(&nr_before);
}

static void after_parent(void *unused)
{
	(void)unused;
	count_fork(&nr_parent);
}

static void after_child(void *unused)
{
	(void)unused;
	count_fork(&nr_child);
}

static void child_continues(void)
{
	struct urcu_atfork handler = { before_fork, after_parent, after_child, NULL };
	int status = -1;
	pid_t child;

	urcu_register_rculfhash_atfork(&handler);
	call_rcu_before_fork();
	child = fork();
	if (child == 0) {
		call_rcu_after_fork_child();
		CHECK(nr_before == 1 && nr_child == 1 && nr_parent == 0);
		_exit(in_child());
	}
	call_rcu_after_fork_parent();
	CHECK(nr_before == 1 && nr_child == 0 && nr_parent == 1);
	urcu_unregister_rculfhash_atfork(&handler);
	call_rcu_before_fork();
	CHECK(nr_before == 1);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Calls MISUSE in a child. In a debug build the child must abort. Otherwise MISUSE must return. */
static void is_reported(void (*misuse)(void))
{
	int status = -1;
	pid_t child = fork();

	if (child == 0) {
		(void)!freopen("/dev/null", "w", stderr);
		misuse();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	if (AW_DEBUG)
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	else
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void call_null(void)
{
	call_rcu(NULL, reclaim);
}

static void call_nothing(void)
{
	static struct rcu_head head;

	call_rcu(&head, NULL);
}

static void defer_nothing(void)
{
	defer_rcu(NULL, NULL);
}

/*
 * Runs for all flavors. Calls that do not print a message report the error in their return value.
 */
static void bad_input_is_reported(void)
{
	is_reported(call_null);
	is_reported(call_nothing);
	is_reported(defer_nothing);
	CHECK(set_cpu_call_rcu_data(-1, NULL) == -EINVAL);
	CHECK(!get_cpu_call_rcu_data(-1) && !get_cpu_call_rcu_data(1 << 20));
	call_rcu_data_free(NULL);
}

#ifdef SUITE_QSBR
static void unregister_unknown(void)
{
	rcu_unregister_thread();
	rcu_unregister_thread();
}

static void report_unknown(void)
{
	rcu_unregister_thread();
	rcu_quiescent_state();
}

static void register_twice(void)
{
	rcu_register_thread();
}

static void report_offline(void)
{
	rcu_thread_offline();
	rcu_quiescent_state();
}

static void misuse_is_reported(void)
{
	is_reported(register_twice);
	is_reported(report_offline);
	is_reported(unregister_unknown);
	is_reported(report_unknown);
}
#else
static void unlock_without_lock(void)
{
	rcu_read_unlock();
}

static void *unlock_there(void *unused)
{
	rcu_read_unlock();
	return unused;
}

static void unlock_on_another_thread(void)
{
	pthread_t thread;

	rcu_read_lock();
	pthread_create(&thread, NULL, unlock_there, NULL);
	pthread_join(thread, NULL);
	rcu_read_unlock();
	synchronize_rcu();
}

static void wait_in_a_section(void)
{
	rcu_read_lock();
	synchronize_rcu();
	rcu_barrier();
}

static void leave_in_a_section(void)
{
	rcu_read_lock();
	rcu_unregister_thread();
}

static void misuse_is_reported(void)
{
	is_reported(unlock_without_lock);
	is_reported(unlock_on_another_thread);
	is_reported(wait_in_a_section);
	is_reported(leave_in_a_section);
}
#endif

#define T(name) { #name, name }
static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	T(readers_never_see_freed_memory),
	T(callbacks_run_after_readers),
	T(a_callback_may_read),
	T(deferred_calls_run_after_readers),
	T(sections_nest),
	T(a_grace_period_waits_for_a_section),
	T(a_section_of_a_parked_thread_is_waited_for),
	T(a_driver_that_sleeps_is_woken_by_the_end_of_a_section),
	T(threads_start_and_exit),
	T(thread_that_exits_registered_delays_no_grace_period),
	T(a_thread_has_a_slot_of_its_own),
	T(a_program_of_another_layout_is_served_by_calls),
	T(helpers_are_released),
	T(child_continues),
	T(bad_input_is_reported),
	T(misuse_is_reported),
};

int main(void)
{
	int nr_bad = 0;
	size_t i;

	alarm(300);
	rcu_init();
	rcu_register_thread();
	for (i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
		nr_failed = 0;
		tests[i].run();
		if (nr_failed) {
			nr_bad++;
			printf("FAILED %s\n", tests[i].name);
		}
	}
	rcu_unregister_thread();
	printf("%zu cases, %d failed\n", i, nr_bad);
	return nr_bad != 0;
}
