/* Callbacks for one thread. */
#include "check.h"

#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

struct note {
	struct callback_head head;
	int number;
	pthread_t by;
};

static int order[64], nr_order;

static void write_down(struct callback_head *head)
{
	struct note *note = container_of(head, struct note, head);

	note->by = pthread_self();
	order[nr_order++] = note->number;
}

static void a_thread_runs_its_callbacks_oldest_first(void)
{
	struct note notes[5];

	nr_order = 0;
	CHECK(!task_work_pending());
	for (int i = 0; i < 5; i++) {
		init_task_work(&notes[i].head, write_down);
		notes[i].number = i;
		CHECK_EQ(task_work_add(get_current(), &notes[i].head, TWA_NONE), 0);
	}
	CHECK(task_work_pending());
	CHECK_EQ(nr_order, 0);
	task_work_run();
	CHECK(!task_work_pending());
	CHECK_EQ(nr_order, 5);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(order[i], i);
		CHECK(pthread_equal(notes[i].by, pthread_self()));
	}
	task_work_run();
	CHECK_EQ(nr_order, 5);
}

static void a_callback_may_be_added_again_after_it_was_called(void)
{
	struct note note = { .number = 1 };

	nr_order = 0;
	init_task_work(&note.head, write_down);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(task_work_add(get_current(), &note.head, TWA_RESUME), 0);
		task_work_run();
	}
	CHECK_EQ(nr_order, 3);
}

static int nr_left;

static void add_itself(struct callback_head *head)
{
	if (--nr_left > 0)
		CHECK_EQ(task_work_add(get_current(), head, TWA_NONE), 0);
}

static void one_that_adds_itself_runs_until_it_stops(void)
{
	struct callback_head head;

	nr_left = 10;
	init_task_work(&head, add_itself);
	task_work_add(get_current(), &head, TWA_NONE);
	task_work_run();
	CHECK_EQ(nr_left, 0);
	CHECK(!task_work_pending());
}

static void free_itself(struct callback_head *head)
{
	free(container_of(head, struct note, head));
	nr_order++;
}

static void one_may_free_itself(void)
{
	nr_order = 0;
	for (int i = 0; i < 10; i++) {
		struct note *note = malloc(sizeof(*note));

		if (!note)
			abort();
		init_task_work(&note->head, free_itself);
		task_work_add(get_current(), &note->head, TWA_NONE);
	}
	task_work_run();
	CHECK_EQ(nr_order, 10);
}

static void cancelled_work_is_not_called(void)
{
	struct note notes[4];
	struct task_struct *me = get_current();

	nr_order = 0;
	for (int i = 0; i < 4; i++) {
		init_task_work(&notes[i].head, write_down);
		notes[i].number = i;
		task_work_add(me, &notes[i].head, TWA_NONE);
	}
	CHECK(task_work_cancel(me, &notes[3].head));
	CHECK(task_work_cancel(me, &notes[1].head));
	CHECK(!task_work_cancel(me, &notes[1].head));
	/* This is appended after the new last callback. */
	CHECK_EQ(task_work_add(me, &notes[3].head, TWA_NONE), 0);
	CHECK(task_work_cancel(me, &notes[0].head));
	task_work_run();
	CHECK_EQ(nr_order, 2);
	CHECK_EQ(order[0], 2);
	CHECK_EQ(order[1], 3);
	CHECK(!task_work_cancel(me, &notes[2].head));
}

static void one_is_found_by_its_function(void)
{
	struct task_struct *me = get_current();
	struct callback_head head;
	struct note note;

	nr_left = 1;
	init_task_work(&note.head, write_down);
	init_task_work(&head, add_itself);
	task_work_add(me, &note.head, TWA_NONE);
	task_work_add(me, &head, TWA_NONE);
	CHECK(task_work_cancel_func(me, free_itself) == NULL);
	CHECK(task_work_cancel_func(me, write_down) == &note.head);
	CHECK(task_work_cancel_func(me, write_down) == NULL);
	task_work_run();
	CHECK_EQ(nr_left, 0);
}

/* ---- between threads ---- */

struct owner {
	pthread_t thread;
	struct task_struct *task;
	sem_t is_there, may_leave;
	int nr_wanted, nr_run, nr_waits;
	bool ends_at_once;
};

struct message {
	struct callback_head head;
	struct owner *to;
};

static void receive(struct callback_head *head)
{
	struct message *message = container_of(head, struct message, head);

	CHECK(pthread_equal(pthread_self(), message->to->thread));
	message->to->nr_run++;
	free(message);
}

static int send(struct owner *to, enum task_work_notify_mode notify)
{
	struct message *message = malloc(sizeof(*message));
	int answer;

	if (!message)
		abort();
	message->to = to;
	init_task_work(&message->head, receive);
	answer = task_work_add(to->task, &message->head, notify);
	if (answer)
		free(message);
	return answer;
}

static void *own(void *data)
{
	struct owner *it = data;

	it->task = get_task_struct(get_current());
	sem_post(&it->is_there);
	if (it->ends_at_once)
		return NULL;
	while (it->nr_run < it->nr_wanted) {
		CHECK(afterwork_task_work_wait(-1));
		it->nr_waits++;
		task_work_run();
	}
	return NULL;
}

static void start(struct owner *it, int nr_wanted)
{
	memset(it, 0, sizeof(*it));
	gate_init(&it->is_there);
	it->nr_wanted = nr_wanted;
	pthread_create(&it->thread, NULL, own, it);
	gate_wait(&it->is_there);
}

static void *send_many(void *data)
{
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(send(data, i % 3 ? TWA_RESUME : TWA_SIGNAL), 0);
	return NULL;
}

static void threads_send_to_one_which_waits(void)
{
	struct owner owner;
	pthread_t senders[3];

	start(&owner, 3000);
	for (int i = 0; i < 3; i++)
		pthread_create(&senders[i], NULL, send_many, &owner);
	for (int i = 0; i < 3; i++)
		pthread_join(senders[i], NULL);
	pthread_join(owner.thread, NULL);
	CHECK_EQ(owner.nr_run, 3000);
	put_task_struct(owner.task);
}

static void lazy_one_wakes_no_thread_and_is_found_with_the_next(void)
{
	struct owner owner;

	start(&owner, 11);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(send(&owner, TWA_NONE), 0);
	CHECK_EQ(send(&owner, TWA_RESUME), 0);
	pthread_join(owner.thread, NULL);
	CHECK_EQ(owner.nr_run, 11);
	put_task_struct(owner.task);
}

static void exited_thread_accepts_no_work(void)
{
	struct owner owner;

	start(&owner, 0);
	pthread_join(owner.thread, NULL);
	CHECK_EQ(send(&owner, TWA_RESUME), -ESRCH);
	CHECK(task_work_cancel_func(owner.task, receive) == NULL);
	put_task_struct(owner.task);
}

static void *own_and_leave(void *data)
{
	struct owner *it = data;

	it->task = get_task_struct(get_current());
	sem_post(&it->is_there);
	gate_wait(&it->may_leave);
	return NULL;
}

static void thread_calls_the_remaining_work_when_it_exits(void)
{
	struct owner owner;
	int nr_sent = 0;

	memset(&owner, 0, sizeof(owner));
	gate_init(&owner.is_there);
	gate_init(&owner.may_leave);
	pthread_create(&owner.thread, NULL, own_and_leave, &owner);
	gate_wait(&owner.is_there);
	for (; nr_sent < 5; nr_sent++)
		CHECK_EQ(send(&owner, TWA_NONE), 0);
	sem_post(&owner.may_leave);
	/* While the thread ends, each callback is either rejected or called. */
	for (int i = 0; i < 1000; i++)
		nr_sent += send(&owner, TWA_NONE) == 0;
	pthread_join(owner.thread, NULL);
	CHECK_EQ(owner.nr_run, nr_sent);
	CHECK_EQ(send(&owner, TWA_NONE), -ESRCH);
	put_task_struct(owner.task);
}

static void wait_ends_with_its_timeout(void)
{
	CHECK(!afterwork_task_work_wait(0));
	CHECK(!afterwork_task_work_wait(3));
}

static void *cancel_all(void *data)
{
	struct owner *it = data;
	long nr = 0;
	struct callback_head *head;

	for (int i = 0; i < 3000; i++) {
		head = task_work_cancel_func(it->task, receive);
		if (head) {
			free(container_of(head, struct message, head));
			nr++;
		}
	}
	return (void *)nr;
}

static void each_is_called_or_cancelled_once(void)
{
	struct owner owner;
	pthread_t canceller;
	void *nr_cancelled;
	int nr_sent = 0;

	memset(&owner, 0, sizeof(owner));
	gate_init(&owner.is_there);
	owner.thread = pthread_self();
	owner.task = get_current();
	pthread_create(&canceller, NULL, cancel_all, &owner);
	for (int i = 0; i < 3000; i++) {
		nr_sent += send(&owner, TWA_NONE) == 0;
		if (i % 7 == 0)
			task_work_run();
	}
	pthread_join(canceller, &nr_cancelled);
	task_work_run();
	CHECK_EQ(owner.nr_run + (long)nr_cancelled, nr_sent);
}

static void post_back(struct work_struct *work);

struct reply {
	struct work_struct work;
	struct note note;
	struct task_struct *to;
};

static void post_back(struct work_struct *work)
{
	struct reply *reply = container_of(work, struct reply, work);

	CHECK_EQ(task_work_add(reply->to, &reply->note.head, TWA_RESUME), 0);
}

static void an_item_of_a_queue_answers_by_task_work(void)
{
	struct reply reply = { .to = get_current() };

	nr_order = 0;
	init_task_work(&reply.note.head, write_down);
	INIT_WORK(&reply.work, post_back);
	schedule_work(&reply.work);
	CHECK(afterwork_task_work_wait(-1));
	task_work_run();
	CHECK_EQ(nr_order, 1);
	flush_work(&reply.work);
}

static void a_child_of_fork_has_task_work_of_its_own(void)
{
	struct task_struct *mine = get_current();
	struct note note = { .number = 1 };
	int status = 0;
	pid_t child;

	child = fork();
	if (child == 0) {
		int answer = get_current() == mine;

		nr_order = 0;
		init_task_work(&note.head, write_down);
		answer |= (task_work_add(mine, &note.head, TWA_NONE) != -ESRCH) << 1;
		answer |= (task_work_add(get_current(), &note.head, TWA_NONE) != 0) << 2;
		task_work_run();
		answer |= (nr_order != 1) << 3;
		kill(getpid(), answer ? SIGTERM : SIGKILL);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	CHECK(get_current() == mine);
}

#define T(name) { #name, name }
const struct test task_work_tests[] = {
	T(a_thread_runs_its_callbacks_oldest_first),
	T(a_callback_may_be_added_again_after_it_was_called),
	T(one_that_adds_itself_runs_until_it_stops),
	T(one_may_free_itself),
	T(cancelled_work_is_not_called),
	T(one_is_found_by_its_function),
	T(threads_send_to_one_which_waits),
	T(lazy_one_wakes_no_thread_and_is_found_with_the_next),
	T(exited_thread_accepts_no_work),
	T(thread_calls_the_remaining_work_when_it_exits),
	T(wait_ends_with_its_timeout),
	T(each_is_called_or_cancelled_once),
	T(an_item_of_a_queue_answers_by_task_work),
	T(a_child_of_fork_has_task_work_of_its_own),
	{ NULL, NULL },
};
