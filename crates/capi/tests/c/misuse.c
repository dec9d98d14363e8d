/* Tests misuse that can be detected. Each kind runs in a separate program, which prints a line. */
#include "check.h"

#include <afterwork/percpu.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void nothing(struct work_struct *work)
{
	(void)work;
}

static struct workqueue_struct *own_wq;

static void flush_self(struct work_struct *work)
{
	CHECK(!flush_work(work));
}

static void flush_own_queue(struct work_struct *work)
{
	(void)work;
	flush_workqueue(own_wq);
}

static void drain_own_queue(struct work_struct *work)
{
	(void)work;
	drain_workqueue(own_wq);
}

static void destroy_own_queue(struct work_struct *work)
{
	(void)work;
	destroy_workqueue(own_wq);
}

static struct work_struct outer;

/*
 * Runs FUNC as an item of its own queue, OUTER. The queue's limit is two, because a worker may
 * already have taken the item for which FUNC waits.
 */
static void inside(work_func_t func, bool destroys)
{
	own_wq = alloc_workqueue("own", WQ_UNBOUND, 2);
	INIT_WORK(&outer, func);
	queue_work(own_wq, &outer);
	flush_work(&outer);
	if (!destroys)
		destroy_workqueue(own_wq);
}

static pthread_t helper;
static bool is_helped;

/* Returns true if the current thread is the one that waits for the running item. */
static bool am_helped(void)
{
	is_helped = pthread_equal(pthread_self(), helper);
	return is_helped;
}

static void flush_with_helper(struct work_struct *work)
{
	(void)work;
	if (am_helped())
		CHECK(!flush_work(&outer));
}

static void drain_with_helper(struct work_struct *work)
{
	if (am_helped())
		drain_own_queue(work);
}

/*
 * Waits for items that call FUNC until this thread runs one of them itself, because no worker was
 * faster.
 */
static void help(work_func_t func)
{
	helper = pthread_self();
	for (is_helped = false; !is_helped;) {
		struct work_struct helped;

		INIT_WORK_ONSTACK(&helped, func);
		queue_work(own_wq, &helped);
		flush_work(&helped);
	}
}

static void help_flush(struct work_struct *work)
{
	(void)work;
	help(flush_with_helper);
}

static void help_drain(struct work_struct *work)
{
	(void)work;
	help(drain_with_helper);
}

static void flush_helping_item(void) { inside(help_flush, false); }
static void drain_helping_queue(void) { inside(help_drain, false); }

static void wait_for_readers(struct work_struct *work)
{
	(void)work;
	synchronize_rcu();
}

static void bottom_half_waits(void)
{
	struct workqueue_struct *wq = alloc_workqueue("bh", WQ_BH, 0);
	DECLARE_WORK(work, wait_for_readers);

	queue_work(wq, &work);
	flush_work(&work);
	destroy_workqueue(wq);
}

static void queue_null_item(void) { CHECK(!queue_work(system_wq, NULL)); }

static void queue_to_null(void)
{
	DECLARE_WORK(work, nothing);

	CHECK(!queue_work(NULL, &work));
}

static void queue_uninitialized(void)
{
	struct work_struct work;

	memset(&work, 0, sizeof(work));
	CHECK(!queue_work(system_wq, &work));
}

static void queue_garbage(void)
{
	struct delayed_work dwork;

	memset(&dwork, 0xa5, sizeof(dwork));
	CHECK(!queue_delayed_work(system_wq, &dwork, 1));
}

static void queue_misaligned(void)
{
	_Alignas(8) char memory[sizeof(struct work_struct) + 4];
	DECLARE_WORK(work, nothing);

	memcpy(memory + 4, &work, sizeof(work));
	CHECK(!queue_work(system_wq, (struct work_struct *)(void *)(memory + 4)));
}

static void queue_without_function(void)
{
	struct work_struct work;

	INIT_WORK(&work, NULL);
	CHECK(!queue_work(system_wq, &work));
	CHECK_EQ(work_busy(&work), 0);
}

static void delayed_without_function(void)
{
	struct delayed_work dwork;

	INIT_DELAYED_WORK(&dwork, NULL);
	CHECK(!queue_delayed_work(system_wq, &dwork, 1));
	CHECK(!mod_delayed_work(system_wq, &dwork, 1));
	CHECK(!flush_delayed_work(&dwork));
}

static void rcu_work_without_function(void)
{
	struct rcu_work rwork;

	INIT_RCU_WORK(&rwork, NULL);
	CHECK(!queue_rcu_work(system_wq, &rwork));
}

static void queue_zeroed(void)
{
	struct work_struct work;

	memset(&work, 0, sizeof(work));
	CHECK(!queue_work(system_wq, &work));
}

static void flush_null(void) { CHECK(!flush_work(NULL)); }
static void cancel_null(void) { CHECK(!cancel_work_sync(NULL)); }
static void cancel_null_delayed(void) { CHECK(!cancel_delayed_work_sync(NULL)); }
static void busy_null(void) { CHECK_EQ(work_busy(NULL), 0); }
static void mod_null(void) { CHECK(!mod_delayed_work(system_wq, NULL, 1)); }

static void cancel_uninitialized(void)
{
	struct work_struct work;

	memset(&work, 0, sizeof(work));
	CHECK(!cancel_work_sync(&work));
}

static void flush_own_item(void) { inside(flush_self, false); }
static void flush_own(void) { inside(flush_own_queue, false); }
static void drain_own(void) { inside(drain_own_queue, false); }
static void destroy_own(void) { inside(destroy_own_queue, true); }

static void enable_too_often(void)
{
	DECLARE_WORK(work, nothing);

	CHECK(!enable_work(&work));
}

static void disable_too_often(void)
{
	DECLARE_WORK(work, nothing);

	for (int i = 0; i < 65536; i++)
		CHECK(!disable_work(&work));
}

static void queue_to_garbage(void)
{
	uint64_t words[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	DECLARE_WORK(work, nothing);

	CHECK(!queue_work((struct workqueue_struct *)(void *)words, &work));
}

static void destroy_system(void) { destroy_workqueue(system_wq); }
static void no_name(void) { CHECK(!aw_alloc_workqueue(NULL, 0, 0)); }
static void zero_max_active(void)
{
	struct workqueue_struct *wq = alloc_workqueue("zero", WQ_UNBOUND, 1);

	CHECK_EQ(workqueue_set_max_active(wq, 0), -22);
	destroy_workqueue(wq);
}

static void ordered_max_active(void)
{
	struct workqueue_struct *wq = alloc_ordered_workqueue("ordered", 0);

	CHECK_EQ(workqueue_set_max_active(wq, 2), -22);
	destroy_workqueue(wq);
}

static void unlock_without_lock(void) { rcu_read_unlock(); }

static void unlock_too_often(void)
{
	rcu_read_lock();
	rcu_read_unlock();
	rcu_read_unlock();
}

static void *unlock_there(void *data)
{
	rcu_read_unlock();
	return data;
}

static void unlock_on_another_thread(void)
{
	pthread_t thread;

	rcu_read_lock();
	pthread_create(&thread, NULL, unlock_there, NULL);
	pthread_join(thread, NULL);
	rcu_read_unlock();
}

static void wait_in_section(void)
{
	rcu_read_lock();
	synchronize_rcu();
	rcu_read_unlock();
}

static void barrier_in_section(void)
{
	rcu_read_lock();
	rcu_barrier();
	rcu_read_unlock();
}

static void call_null(void) { call_rcu(NULL, NULL); }

static void call_no_function(void)
{
	static struct rcu_head head;

	call_rcu(&head, NULL);
}

static void srcu_null(void) { CHECK_EQ(srcu_read_lock(NULL), 0); }

static void srcu_bad_index(void)
{
	struct srcu_struct domain;

	init_srcu_struct(&domain);
	srcu_read_unlock(&domain, 7);
	cleanup_srcu_struct(&domain);
}

static struct workqueue_struct *parents;
DEFINE_STATIC_SRCU(parents_domain);

/*
 * Runs FUNC in a child, which aborts in any build, because the function has no return value for
 * this case. Then this program aborts.
 */
static void in_child(void (*func)(void))
{
	int status = 0;
	pid_t child;

	parents = alloc_workqueue("parent", WQ_UNBOUND, 1);
	synchronize_srcu(&parents_domain);
	child = fork();
	if (child == 0) {
		func();
		_exit(0);
	}
	waitpid(child, &status, 0);
	destroy_workqueue(parents);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	if (nr_failed_checks == 0)
		abort();
}

static void childs_queue(void)
{
	DECLARE_WORK(work, nothing);

	queue_work(parents, &work);
}

static void childs_delayed(void)
{
	DECLARE_DELAYED_WORK(dwork, nothing);

	queue_delayed_work(parents, &dwork, 1);
}

static void childs_mod(void)
{
	DECLARE_DELAYED_WORK(dwork, nothing);

	mod_delayed_work(parents, &dwork, 1);
}

static void childs_rcu_work(void)
{
	struct rcu_work rwork;

	INIT_RCU_WORK(&rwork, nothing);
	queue_rcu_work(parents, &rwork);
}

static void childs_flush(void) { flush_workqueue(parents); }
static void childs_drain(void) { drain_workqueue(parents); }
static void childs_destroy(void) { destroy_workqueue(parents); }
static void childs_limit(void) { workqueue_set_max_active(parents, 2); }
static void childs_attrs(void) { apply_workqueue_attrs(parents, alloc_workqueue_attrs()); }
static void childs_srcu(void) { synchronize_srcu(&parents_domain); }

static void queue_of_the_parent(void) { in_child(childs_queue); }
static void delayed_of_the_parent(void) { in_child(childs_delayed); }
static void mod_of_the_parent(void) { in_child(childs_mod); }
static void rcu_work_of_the_parent(void) { in_child(childs_rcu_work); }
static void flush_of_the_parent(void) { in_child(childs_flush); }
static void drain_of_the_parent(void) { in_child(childs_drain); }
static void destroy_of_the_parent(void) { in_child(childs_destroy); }
static void limit_of_the_parent(void) { in_child(childs_limit); }
static void attrs_of_the_parent(void) { in_child(childs_attrs); }
static void srcu_of_the_parent(void) { in_child(childs_srcu); }

static void wait_for_callbacks(struct rcu_head *head)
{
	(void)head;
	rcu_barrier();
}

static void barrier_in_callback(void)
{
	static struct rcu_head head;

	call_rcu(&head, wait_for_callbacks);
	rcu_barrier();
}

static void wait_for_srcu_callbacks(struct rcu_head *head)
{
	(void)head;
	srcu_barrier(&parents_domain);
}

static void srcu_barrier_in_callback(void)
{
	static struct rcu_head head;

	call_srcu(&parents_domain, &head, wait_for_srcu_callbacks);
	srcu_barrier(&parents_domain);
}

static void sections_too_deep(void)
{
	for (int i = 0; i < 70000; i++)
		rcu_read_lock();
}

static void null_description(void) { aw_set_worker_desc(NULL); }

static void leave_section(struct work_struct *work)
{
	(void)work;
	rcu_read_lock();
}

static void item_leaves_section(void) { inside(leave_section, false); }

static void leave_section_in_callback(struct rcu_head *head)
{
	(void)head;
	rcu_read_lock();
}

static void callback_leaves_section(void)
{
	static struct rcu_head head;

	call_rcu(&head, leave_section_in_callback);
	rcu_barrier();
}

static void srcu_callback_leaves_section(void)
{
	static struct rcu_head head;
	struct srcu_struct domain;

	init_srcu_struct(&domain);
	call_srcu(&domain, &head, leave_section_in_callback);
	srcu_barrier(&domain);
}

static void rcu_work_of_null(void) { CHECK(!queue_rcu_work(system_wq, NULL)); }

static void rcu_work_to_null(void)
{
	struct rcu_work rwork;

	INIT_RCU_WORK(&rwork, nothing);
	CHECK(!queue_rcu_work(NULL, &rwork));
}

static void kfree_too_far(void)
{
	static struct {
		char before[4096];
		struct rcu_head rcu;
	} it;

	kfree_rcu(&it, rcu);
}

static void attrs_of_a_system_queue(void)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();

	CHECK_EQ(apply_workqueue_attrs(system_wq, attrs), -22);
	free_workqueue_attrs(attrs);
}

static void each_cpu_nothing(void) { CHECK_EQ(schedule_on_each_cpu(NULL), -22); }

static void free_percpu_of_none(void)
{
	_Alignas(4096) static char memory[8192];

	free_percpu(memory + 4096);
}

static void free_percpu_twice(void)
{
	static _Alignas(4096) size_t copy[1024];
	long *data = alloc_percpu(long);

	/* Copies the header before the free, because the memory may be unmapped afterwards. */
	memcpy(&copy[512 - 4], (size_t *)data - 4, 4 * sizeof(size_t));
	copy[512 - 4] = 0;
	free_percpu(data);
	free_percpu(&copy[512]);
}

static void unlock_free_part(void)
{
	pw_lock_t lock;

	pw_lock_init(&lock);
	pw_unlock(&lock);
}

static void lock_null_part(void) { pw_lock(NULL); }

static void nothing_to_do(struct callback_head *work) { (void)work; }

static void task_work_twice(void)
{
	struct callback_head head;

	init_task_work(&head, nothing_to_do);
	CHECK_EQ(task_work_add(get_current(), &head, TWA_NONE), 0);
	CHECK_EQ(task_work_add(get_current(), &head, TWA_NONE), -22);
	task_work_run();
}

static void task_work_uninitialized(void)
{
	struct callback_head head;

	init_task_work(&head, NULL);
	CHECK_EQ(task_work_add(get_current(), &head, TWA_NONE), -22);
}

static void task_work_to_null(void)
{
	struct callback_head head;

	init_task_work(&head, nothing_to_do);
	CHECK_EQ(task_work_add(NULL, &head, TWA_NONE), -22);
}

static void leave_section_in_task_work(struct callback_head *work)
{
	(void)work;
	rcu_read_lock();
}

static void task_work_leaves_section(void)
{
	struct callback_head head;

	init_task_work(&head, leave_section_in_task_work);
	task_work_add(get_current(), &head, TWA_NONE);
	task_work_run();
}

static void poll_null_domain(void) { CHECK(poll_state_synchronize_srcu(NULL, 0)); }

static void unlock_srcu_without_lock(void)
{
	struct srcu_struct domain;

	init_srcu_struct(&domain);
	srcu_read_unlock(&domain, 0);
	synchronize_srcu(&domain);
}

static void unlock_srcu_twice(void)
{
	struct srcu_struct domain;
	int index;

	init_srcu_struct(&domain);
	index = srcu_read_lock(&domain);
	srcu_read_unlock(&domain, index);
	srcu_read_unlock(&domain, index);
	synchronize_srcu(&domain);
}

static void unlock_null_srcu(void) { srcu_read_unlock(NULL, 0); }
static void wait_for_null_srcu(void) { synchronize_srcu(NULL); }
static void init_null_srcu(void) { CHECK_EQ(init_srcu_struct(NULL), -12); }
static void never(struct rcu_head *head) { CHECK(!head); }

static void call_null_srcu(void)
{
	static struct rcu_head head;

	call_srcu(NULL, &head, never);
}

static void call_srcu_null(void)
{
	struct srcu_struct domain;

	init_srcu_struct(&domain);
	call_srcu(&domain, NULL, never);
	cleanup_srcu_struct(&domain);
}

static void expedited_in_section(void)
{
	rcu_read_lock();
	synchronize_rcu_expedited();
	rcu_read_unlock();
}

static void delayed_to_null(void)
{
	struct delayed_work dwork;

	INIT_DELAYED_WORK(&dwork, nothing);
	CHECK(!queue_delayed_work(NULL, &dwork, 1));
}

static void mod_to_null(void)
{
	struct delayed_work dwork;

	INIT_DELAYED_WORK(&dwork, nothing);
	CHECK(!mod_delayed_work(NULL, &dwork, 1));
}

static void cancel_uninitialized_delayed(void)
{
	struct delayed_work dwork;

	memset(&dwork, 0, sizeof(dwork));
	CHECK(!cancel_delayed_work_sync(&dwork));
}

static void destroy_garbage(void)
{
	uint64_t words[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	destroy_workqueue((struct workqueue_struct *)(void *)words);
}

static void flush_null_queue(void) { flush_workqueue(NULL); }
static void drain_null_queue(void) { drain_workqueue(NULL); }
static void limit_null_queue(void) { CHECK_EQ(workqueue_set_max_active(NULL, 1), -22); }
static void queue_null_on_node(void) { CHECK(!queue_work_node(0, system_wq, NULL)); }
static void flush_null_rcu_work(void) { CHECK(!flush_rcu_work(NULL)); }
static void block_in_nothing(void) { CHECK_EQ(afterwork_blocking(NULL, NULL), 0); }

static void attrs_to_null(void)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();

	CHECK_EQ(apply_workqueue_attrs(NULL, attrs), -22);
	free_workqueue_attrs(attrs);
}

static void unlock_null_part(void) { pw_unlock(NULL); }
static void task_work_of_null(void) { CHECK_EQ(task_work_add(get_current(), NULL, TWA_NONE), -22); }
static void keep_null_task(void) { CHECK(!get_task_struct(NULL)); }

static void cancel_of_null_task(void)
{
	struct callback_head head;

	init_task_work(&head, nothing_to_do);
	CHECK(!task_work_cancel(NULL, &head));
}

static void cancel_func_of_null_task(void) { CHECK(!task_work_cancel_func(NULL, nothing_to_do)); }

static const struct misuse {
	const char *name;
	void (*run)(void);
	/* A part of the line on stderr. */
	const char *line;
	/* True if the process must end in any build. */
	bool ends;
} misuses[] = {
#define M(name, line) { #name, name, line, false }
#define E(name, line) { #name, name, line, true }
	M(queue_null_item, "queue_work: the work item is NULL"),
	M(queue_to_null, "queue_work: this is not a workqueue"),
	M(queue_uninitialized, "queue_work: the work item is not initialized"),
	M(queue_garbage, "queue_delayed_work: the work item is not initialized"),
	M(queue_misaligned, "queue_work: the work item is not aligned to 8 bytes"),
	M(queue_without_function, "queue_work: the work item has no function"),
	M(delayed_without_function, "queue_delayed_work: the work item has no function"),
	M(rcu_work_without_function, "queue_rcu_work: the work item has no function"),
	M(queue_zeroed, "queue_work: the work item is not initialized"),
	M(flush_null, "flush_work: the work item is NULL"),
	M(cancel_null, "cancel_work_sync: the work item is NULL"),
	M(cancel_null_delayed, "cancel_delayed_work_sync: the work item is NULL"),
	M(busy_null, "work_busy: the work item is NULL"),
	M(mod_null, "mod_delayed_work: the work item is NULL"),
	M(cancel_uninitialized, "cancel_work_sync: the work item is not initialized"),
	M(flush_own_item, "flush_work: the work item waits for its own end"),
	M(flush_own, "flush_workqueue: "),
	M(drain_own, "drain_workqueue: "),
	E(destroy_own, "destroy_workqueue: "),
	M(flush_helping_item, "flush_work: the work item waits for its own end"),
	M(drain_helping_queue, "drain_workqueue: "),
	E(bottom_half_waits, "an item of a bottom-half queue is about to sleep"),
	E(item_leaves_section, "returned in another read-side critical section"),
	E(callback_leaves_section, "returned in another read-side critical section"),
	E(srcu_callback_leaves_section, "returned in another read-side critical section"),
	M(enable_too_often, "enable_work: the work item is enabled and was not disabled"),
	M(disable_too_often, "disable_work: the work item was disabled 65535 times"),
	M(queue_to_garbage, "queue_work: this is not a workqueue"),
	M(destroy_system, "destroy_workqueue: a system queue"),
	M(no_name, "alloc_workqueue: the name is NULL"),
	M(zero_max_active, "workqueue_set_max_active: "),
	M(ordered_max_active, "workqueue_set_max_active: "),
	M(unlock_without_lock, "rcu_read_unlock: this thread is not in a"),
	M(unlock_too_often, "rcu_read_unlock: this thread is not in a"),
	M(unlock_on_another_thread, "rcu_read_unlock: this thread is not in a"),
	M(wait_in_section, "synchronize_rcu: inside a read-side critical section"),
	M(barrier_in_section, "rcu_barrier: inside a read-side critical section"),
	M(call_null, "call_rcu: the head or the function is NULL"),
	M(call_no_function, "call_rcu: the head or the function is NULL"),
	M(srcu_null, "srcu_read_lock: the srcu_struct is NULL"),
	M(srcu_bad_index, "srcu_read_unlock: the index belongs to no section"),
	M(rcu_work_of_null, "queue_rcu_work: the work item is NULL"),
	M(rcu_work_to_null, "queue_rcu_work: this is not a workqueue"),
	M(kfree_too_far, "kfree_rcu: the head is NULL, or 4096 bytes or more"),
	M(attrs_of_a_system_queue, "apply_workqueue_attrs: a system queue"),
	M(each_cpu_nothing, "schedule_on_each_cpu: the function is NULL"),
	M(free_percpu_of_none, "free_percpu: this is not per-CPU data"),
	M(free_percpu_twice, "free_percpu: this is not per-CPU data"),
	M(unlock_free_part, "pw_unlock: the lock is not held"),
	M(lock_null_part, "pw_lock: the lock is NULL"),
	M(task_work_twice, "task_work_add: the callback was added already"),
	M(task_work_uninitialized, "task_work_add: the callback is not initialized"),
	M(task_work_to_null, "task_work_add: the task is NULL"),
	E(task_work_leaves_section, "returned in another read-side critical section"),
	M(poll_null_domain, "poll_state_synchronize_srcu: the srcu_struct is NULL"),
	E(queue_of_the_parent, "queue_work: workqueue \"parent\" was created before the process was forked"),
	E(delayed_of_the_parent, "queue_delayed_work: workqueue \"parent\" was created before"),
	E(mod_of_the_parent, "mod_delayed_work: workqueue \"parent\" was created before"),
	E(rcu_work_of_the_parent, "queue_rcu_work: workqueue \"parent\" was created before"),
	E(flush_of_the_parent, "flush_workqueue: workqueue \"parent\" was created before"),
	E(drain_of_the_parent, "drain_workqueue: workqueue \"parent\" was created before"),
	E(destroy_of_the_parent, "destroy_workqueue: workqueue \"parent\" was created before"),
	E(limit_of_the_parent, "workqueue_set_max_active: workqueue \"parent\" was created before"),
	E(attrs_of_the_parent, "apply_workqueue_attrs: workqueue \"parent\" was created before"),
	E(srcu_of_the_parent, "synchronize_srcu: "),
	E(barrier_in_callback, "rcu_barrier: "),
	E(srcu_barrier_in_callback, "srcu_barrier: "),
	E(sections_too_deep, "rcu_read_lock: "),
	M(null_description, "set_worker_desc: the description is NULL"),
	E(unlock_srcu_without_lock, "srcu_read_unlock: the domain has more unlocks"),
	E(unlock_srcu_twice, "srcu_read_unlock: the domain has more unlocks"),
	M(unlock_null_srcu, "srcu_read_unlock: the srcu_struct is NULL"),
	M(wait_for_null_srcu, "synchronize_srcu: the srcu_struct is NULL"),
	M(init_null_srcu, "init_srcu_struct: the srcu_struct is NULL"),
	M(call_null_srcu, "call_srcu: the srcu_struct is NULL"),
	M(call_srcu_null, "call_srcu: the head or the function is NULL"),
	M(expedited_in_section, "synchronize_rcu_expedited: inside a read-side critical section"),
	M(delayed_to_null, "queue_delayed_work: this is not a workqueue"),
	M(mod_to_null, "mod_delayed_work: this is not a workqueue"),
	M(cancel_uninitialized_delayed, "cancel_delayed_work_sync: the work item is not initialized"),
	M(destroy_garbage, "destroy_workqueue: this is not a workqueue"),
	M(flush_null_queue, "flush_workqueue: this is not a workqueue"),
	M(drain_null_queue, "drain_workqueue: this is not a workqueue"),
	M(limit_null_queue, "workqueue_set_max_active: this is not a workqueue"),
	M(queue_null_on_node, "queue_work_node: the work item is NULL"),
	M(flush_null_rcu_work, "flush_rcu_work: the work item is NULL"),
	M(block_in_nothing, "afterwork_blocking: the function is NULL"),
	M(attrs_to_null, "apply_workqueue_attrs: this is not a workqueue"),
	M(unlock_null_part, "pw_unlock: the lock is NULL"),
	M(task_work_of_null, "task_work_add: the callback is not initialized"),
	M(keep_null_task, "get_task_struct: the task is NULL"),
	M(cancel_of_null_task, "task_work_cancel: the task is NULL"),
	M(cancel_func_of_null_task, "task_work_cancel_func: the task is NULL"),
};
#define NR_MISUSES (sizeof(misuses) / sizeof(misuses[0]))

int run_misuse(const char *name)
{
	const struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	for (size_t i = 0; i < NR_MISUSES; i++) {
		if (strcmp(misuses[i].name, name) == 0) {
			misuses[i].run();
			return nr_failed_checks != 0;
		}
	}
	return 2;
}

bool misuse_is_reported(const char *name, const char *line, bool ends)
{
	char said[4096], rest[4096], self[4096];
	size_t len = 0;
	ssize_t got;
	int fds[2], status, nr_lines = 0;
	pid_t child;

	got = readlink("/proc/self/exe", self, sizeof(self) - 1);
	if (pipe(fds) != 0 || got < 0)
		abort();
	self[got] = 0;
	child = fork();
	if (child == 0) {
		char flag[] = "--misuse", *args[] = { self, flag, NULL, NULL };

		args[2] = strdup(name);
		/* A backtrace would precede the line. The library ignores this request for a backtrace. */
		setenv("RUST_BACKTRACE", "1", 1);
		dup2(fds[1], 2);
		close(fds[0]);
		execv(self, args);
		_exit(3);
	}
	close(fds[1]);
	while (len < sizeof(said) - 1 && (got = read(fds[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)got;
	said[len] = 0;
	/* Read the rest, so that the child can finish writing. */
	while (read(fds[0], rest, sizeof(rest)) > 0)
		;
	close(fds[0]);
	if (waitpid(child, &status, 0) != child)
		abort();
	/* Each misuse prints one line that begins with the library's name, and nothing else. */
	for (char *at = said; strncmp(at, "afterwork: ", 11) == 0 && (at = strchr(at, '\n')); at++)
		nr_lines++;
	for (char *at = strchr(said, '\n'); at; at = strchr(at + 1, '\n'))
		nr_lines--;
	if (!strstr(said, line) || nr_lines != 0 || ((ends || AW_DEBUG) && strchr(said, '\n') != said + len - 1)) {
		fprintf(stderr, "    %s said: %s\n", name, said);
		return false;
	}
	/* AW_DEBUG is 1 if the library is a debug build. */
	if (ends || AW_DEBUG ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) : status != 0) {
		fprintf(stderr, "    %s ended with %#x: %s\n", name, (unsigned int)status, said);
		return false;
	}
	return true;
}

/* Each misuse is a test case. */
#define CASES(X)                                                                                             \
	X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18) \
	X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) X(32) X(33) X(34) X(35) X(36) \
	X(37) X(38) X(39) X(40) X(41) X(42) X(43) X(44) X(45) X(46) X(47) X(48) X(49) X(50) X(51) X(52) X(53) X(54) \
	X(55) X(56) X(57) X(58) X(59) X(60) X(61) X(62) X(63) X(64) X(65) X(66) X(67) X(68) X(69) X(70) X(71) X(72) \
	X(73) X(74) X(75) X(76) X(77) X(78) X(79) X(80) X(81) X(82) X(83) X(84) X(85) X(86) X(87) X(88) X(89) X(90) \
	X(91) X(92)
#define RUN(n)                                                                          \
	static void misuse_##n(void) { CHECK(misuse_is_reported(misuses[n].name, misuses[n].line, misuses[n].ends)); }
#define ROW(n) { "misuse_" #n, misuse_##n },
CASES(RUN)
_Static_assert(NR_MISUSES == 93, "each misuse is a case");

const struct test misuse_tests[] = {
	CASES(ROW)
	{ NULL, NULL },
};
