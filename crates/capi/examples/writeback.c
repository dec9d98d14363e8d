/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A block cache like those of the kernel. This is an example of ported code, and a test.
 *
 * - Many threads dirty buffers. A delayed item inside the buffer writes it back some time later.
 *   Dirtying the buffer again in the meantime does not change the delay, unless the thread is in a
 *   hurry: it then shortens the delay.
 * - The write-back is logged in a journal. Its commits are items of an ordered queue, which free
 *   themselves.
 * - Each commit reads a list of listeners under RCU. Removed listeners are freed after a grace
 *   period.
 * - A monitor checks the cache every few milliseconds. It is an item that queues itself again.
 * - The teardown ends these in the required order: monitor, write-back, journal, listeners.
 */
#include <afterwork/jiffies.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/workqueue.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR_BUFFERS 64
#define NR_THREADS 4
#define NR_ROUNDS 2000
#define BUFFER_SIZE 128

#define WRITEBACK_DELAY msecs_to_jiffies(5)
#define WATCH_PERIOD msecs_to_jiffies(2)

static void require(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "writeback: %s\n", what);
		exit(1);
	}
}

static void *must_alloc(size_t size)
{
	void *memory = calloc(1, size);

	require(memory != NULL, "out of memory");
	return memory;
}

/* ---- a list that is read under RCU ---- */

struct listener {
	struct listener *next;
	const char *name;
	unsigned long nr_heard;
	struct rcu_head rcu;
};

struct listeners {
	struct listener *first;
	/* Guards changes of the list. */
	pthread_mutex_t lock;
	/* The number of freed listeners. */
	unsigned long nr_freed;
};

static struct listeners listeners = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct listener *listen_to_commits(const char *name)
{
	struct listener *listener = must_alloc(sizeof(*listener));

	listener->name = name;
	pthread_mutex_lock(&listeners.lock);
	listener->next = listeners.first;
	rcu_assign_pointer(listeners.first, listener);
	pthread_mutex_unlock(&listeners.lock);
	return listener;
}

static void free_listener(struct rcu_head *head)
{
	struct listener *listener = container_of(head, struct listener, rcu);

	free(listener);
	__atomic_fetch_add(&listeners.nr_freed, 1, __ATOMIC_RELAXED);
}

static void stop_listening(struct listener *listener)
{
	struct listener **place = &listeners.first;

	pthread_mutex_lock(&listeners.lock);
	while (*place != listener)
		place = &(*place)->next;
	rcu_assign_pointer(*place, listener->next);
	pthread_mutex_unlock(&listeners.lock);
	call_rcu(&listener->rcu, free_listener);
}

static void notify_listeners(void)
{
	struct listener *listener;

	rcu_read_lock();
	for (listener = rcu_dereference(listeners.first); listener; listener = rcu_dereference(listener->next))
		__atomic_fetch_add(&listener->nr_heard, 1, __ATOMIC_RELAXED);
	rcu_read_unlock();
}

/* ---- the journal: commits in order, which free themselves ---- */

struct journal {
	struct workqueue_struct *wq;
	pthread_mutex_t lock;
	unsigned long next_seq;
	/* Only items of the ordered queue access this, and they run one at a time. */
	unsigned long committed_seq;
};

struct commit {
	struct work_struct work;
	struct journal *journal;
	unsigned long seq;
};

static void commit_work(struct work_struct *work)
{
	struct commit *commit = container_of(work, struct commit, work);
	struct journal *journal = commit->journal;

	require(commit->seq == journal->committed_seq + 1, "commits are out of order");
	journal->committed_seq = commit->seq;
	notify_listeners();
	/* This is allowed, because callers wait for all commits, and never for a single one. */
	free(commit);
}

static void journal_commit(struct journal *journal)
{
	struct commit *commit = must_alloc(sizeof(*commit));

	INIT_WORK(&commit->work, commit_work);
	commit->journal = journal;
	/* The commits must be queued in the order of their numbers. */
	pthread_mutex_lock(&journal->lock);
	commit->seq = ++journal->next_seq;
	require(queue_work(journal->wq, &commit->work), "a fresh commit was pending");
	pthread_mutex_unlock(&journal->lock);
}

static void journal_init(struct journal *journal)
{
	memset(journal, 0, sizeof(*journal));
	pthread_mutex_init(&journal->lock, NULL);
	journal->wq = alloc_ordered_workqueue("%s-journal", WQ_MEM_RECLAIM, "cache");
	require(journal->wq != NULL, "no queue for the journal");
}

static void journal_end(struct journal *journal)
{
	flush_workqueue(journal->wq);
	require(journal->committed_seq == journal->next_seq, "a flush left commits behind");
	destroy_workqueue(journal->wq);
	pthread_mutex_destroy(&journal->lock);
}

/* ---- buffers ---- */

enum buffer_state { CLEAN, DIRTY };

struct cache;

struct buffer {
	struct cache *cache;
	pthread_mutex_t lock;
	enum buffer_state state;
	unsigned char data[BUFFER_SIZE];
	unsigned long nr_dirtied, nr_written;
	/* The contents of the disk. */
	unsigned char disk[BUFFER_SIZE];
	struct delayed_work writeback;
};

struct cache {
	struct workqueue_struct *wq;
	struct journal journal;
	struct delayed_work watch;
	unsigned long nr_looks;
	struct buffer buffers[NR_BUFFERS];
};

static void writeback_work(struct work_struct *work)
{
	struct buffer *buffer = container_of(to_delayed_work(work), struct buffer, writeback);
	bool wrote = false;

	pthread_mutex_lock(&buffer->lock);
	if (buffer->state == DIRTY) {
		memcpy(buffer->disk, buffer->data, BUFFER_SIZE);
		buffer->state = CLEAN;
		buffer->nr_written++;
		wrote = true;
	}
	pthread_mutex_unlock(&buffer->lock);
	if (wrote)
		journal_commit(&buffer->cache->journal);
}

static void dirty_buffer(struct buffer *buffer, unsigned char value, bool hurry)
{
	pthread_mutex_lock(&buffer->lock);
	memset(buffer->data, value, BUFFER_SIZE);
	buffer->state = DIRTY;
	buffer->nr_dirtied++;
	pthread_mutex_unlock(&buffer->lock);
	if (hurry)
		mod_delayed_work(buffer->cache->wq, &buffer->writeback, 0);
	else
		queue_delayed_work(buffer->cache->wq, &buffer->writeback, WRITEBACK_DELAY);
}

static void watch_work(struct work_struct *work)
{
	struct cache *cache = container_of(to_delayed_work(work), struct cache, watch);

	cache->nr_looks++;
	queue_delayed_work(system_wq, &cache->watch, WATCH_PERIOD);
}

static struct cache *cache_new(void)
{
	/* The cache is one large allocation, which contains all of its items. */
	struct cache *cache = must_alloc(sizeof(*cache));

	cache->wq = alloc_workqueue("%s-writeback", WQ_UNBOUND | WQ_MEM_RECLAIM, 8, "cache");
	require(cache->wq != NULL, "no queue for write-back");
	journal_init(&cache->journal);
	for (int i = 0; i < NR_BUFFERS; i++) {
		struct buffer *buffer = &cache->buffers[i];

		buffer->cache = cache;
		pthread_mutex_init(&buffer->lock, NULL);
		INIT_DELAYED_WORK(&buffer->writeback, writeback_work);
	}
	INIT_DELAYED_WORK(&cache->watch, watch_work);
	queue_delayed_work(system_wq, &cache->watch, WATCH_PERIOD);
	return cache;
}

/*
 * Writes back and frees a cache that is no longer used. Returns the number of writes.
 */
static unsigned long cache_free(struct cache *cache)
{
	unsigned long nr_written = 0;

	/* The item queues itself again. This is rejected during the wait. */
	cancel_delayed_work_sync(&cache->watch);
	for (int i = 0; i < NR_BUFFERS; i++) {
		struct buffer *buffer = &cache->buffers[i];

		flush_delayed_work(&buffer->writeback);
		cancel_delayed_work_sync(&buffer->writeback);
		require(!delayed_work_pending(&buffer->writeback), "a cancelled item is pending");
		require(buffer->state == CLEAN, "a buffer was not written back");
		require(memcmp(buffer->disk, buffer->data, BUFFER_SIZE) == 0, "the disk has something else");
		nr_written += buffer->nr_written;
		pthread_mutex_destroy(&buffer->lock);
	}
	destroy_workqueue(cache->wq);
	journal_end(&cache->journal);
	free(cache);
	return nr_written;
}

/* ---- users of the cache ---- */

struct user {
	struct cache *cache;
	unsigned int seed;
};

static void *use_cache(void *data)
{
	struct user *user = data;
	unsigned int dice = user->seed;
	struct listener *listener = NULL;

	for (int i = 0; i < NR_ROUNDS; i++) {
		struct buffer *buffer;

		dice = dice * 1103515245u + 12345u;
		buffer = &user->cache->buffers[(dice >> 16) % NR_BUFFERS];
		dirty_buffer(buffer, (unsigned char)(dice >> 8), i % 16 == 0);
		/* Register and unregister a listener while commits read the list. */
		if (i % 50 == 0) {
			if (listener)
				stop_listening(listener);
			listener = listen_to_commits("user");
		}
	}
	stop_listening(listener);
	return NULL;
}

int main(void)
{
	struct listener *all = listen_to_commits("all");
	struct cache *cache = cache_new();
	struct user users[NR_THREADS];
	pthread_t threads[NR_THREADS];
	unsigned long nr_written, nr_heard;

	for (int i = 0; i < NR_THREADS; i++) {
		users[i] = (struct user){ .cache = cache, .seed = (unsigned int)i + 1 };
		require(pthread_create(&threads[i], NULL, use_cache, &users[i]) == 0, "no thread");
	}
	for (int i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	nr_written = cache_free(cache);
	nr_heard = all->nr_heard;
	stop_listening(all);
	rcu_barrier();
	require(nr_heard == nr_written, "a commit was not told, or told twice");
	require(listeners.nr_freed == NR_THREADS * (NR_ROUNDS / 50) + 1, "a listener was not freed");
	printf("writeback: %d changes, %lu written, %lu told\n", NR_THREADS * NR_ROUNDS, nr_written, nr_heard);
	return 0;
}
