/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Volumes that are added and removed during I/O, like those of a block driver in the kernel. This
 * is an example of ported code, and a test.
 *
 * - An item of the volume's queue (WQ_MEM_RECLAIM) executes a bio, and retries it after a delay if
 *   the disk rejects it. If the bio takes too long, its timer ends it. The first of the two claims
 *   the bio. The timer, the execution and the submitter each hold a reference.
 * - Task work reports the end of a bio to the submitter, on the submitter's thread.
 * - Items of an ordered queue log the writes, and free themselves. A delayed item of that queue
 *   commits the log after some time, or at once if the log is long.
 * - The list of volumes is read under RCU. Each volume has limits, which are replaced while they
 *   are read.
 * - An item of another WQ_MEM_RECLAIM queue reclaims dirty blocks. I/O waits for it if necessary.
 * - A scrubber checks each volume every few milliseconds. Its item rearms itself until the volume
 *   is removed.
 * - The listeners are called inside an SRCU section, and may sleep.
 * - When the last reference to a volume has been dropped, an item frees the volume and its queues
 *   after a grace period.
 * - The counters are per-CPU data.
 */
#include <afterwork/percpu.h>
#include <afterwork/jiffies.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR_SUBMITTERS 3
#define NR_BIOS 500
#define NR_VOLUMES 16
#define NR_AT_ONCE 4
#define QUEUE_DEPTH 8
#define NR_SECTORS 32
#define SECTOR_SIZE 64

#define SCRUB_PERIOD msecs_to_jiffies(2)
#define COMMIT_DELAY msecs_to_jiffies(3)
#define COMMIT_BATCH 16
#define RETRY_DELAY msecs_to_jiffies(1)
#define STUCK_TIMEOUT msecs_to_jiffies(4)
#define IO_TIMEOUT (60 * HZ)
#define RECLAIM_ABOVE 24
#define WAIT_ABOVE 48

/* ---- names of the kernel that user space has under other names ---- */

#define WARN_ON(cond)                                                                     \
	do {                                                                              \
		if (cond) {                                                               \
			fprintf(stderr, "volumes:%d: %s\n", __LINE__, #cond);             \
			abort();                                                          \
		}                                                                         \
	} while (0)

struct mutex {
	pthread_mutex_t lock;
};

#define DEFINE_MUTEX(name) struct mutex name = { PTHREAD_MUTEX_INITIALIZER }

static void mutex_init(struct mutex *mutex)
{
	WARN_ON(pthread_mutex_init(&mutex->lock, NULL) != 0);
}

static void mutex_destroy(struct mutex *mutex)
{
	WARN_ON(pthread_mutex_destroy(&mutex->lock) != 0);
}

static void mutex_lock(struct mutex *mutex)
{
	WARN_ON(pthread_mutex_lock(&mutex->lock) != 0);
}

static void mutex_unlock(struct mutex *mutex)
{
	WARN_ON(pthread_mutex_unlock(&mutex->lock) != 0);
}

static void *kzalloc(size_t size)
{
	void *memory = calloc(1, size);

	WARN_ON(!memory);
	return memory;
}

typedef struct {
	int count;
} refcount_t;

static void refcount_set(refcount_t *refs, int count)
{
	__atomic_store_n(&refs->count, count, __ATOMIC_RELAXED);
}

static void refcount_inc(refcount_t *refs)
{
	WARN_ON(__atomic_fetch_add(&refs->count, 1, __ATOMIC_RELAXED) <= 0);
}

static bool refcount_inc_not_zero(refcount_t *refs)
{
	int count = __atomic_load_n(&refs->count, __ATOMIC_RELAXED);

	while (count != 0)
		if (__atomic_compare_exchange_n(&refs->count, &count, count + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

static bool refcount_dec_and_test(refcount_t *refs)
{
	int before = __atomic_fetch_sub(&refs->count, 1, __ATOMIC_ACQ_REL);

	WARN_ON(before <= 0);
	return before == 1;
}

/* Lists that are read under RCU or SRCU, and changed under a lock. */
struct list_head {
	struct list_head *next, *prev;
};

#define LIST_HEAD(name) struct list_head name = { &(name), &(name) }

static void list_add_tail_rcu(struct list_head *entry, struct list_head *head)
{
	entry->next = head;
	entry->prev = head->prev;
	rcu_assign_pointer(head->prev->next, entry);
	head->prev = entry;
}

/* Current readers can still continue from the removed entry. */
static void list_del_rcu(struct list_head *entry)
{
	entry->next->prev = entry->prev;
	rcu_assign_pointer(entry->prev->next, entry->next);
	entry->prev = NULL;
}

static bool list_empty(const struct list_head *head)
{
	return rcu_access_pointer(head->next) == head;
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_for_each_entry_rcu(pos, head, type, member)                         \
	for (pos = list_entry(rcu_dereference((head)->next), type, member);      \
	     &pos->member != (head);                                             \
	     pos = list_entry(rcu_dereference(pos->member.next), type, member))

/* ---- counters ---- */

enum counter { SUBMITTED, DONE, TIMED_OUT, NO_DEVICE, RETRIED, RECLAIMED, NR_COUNTERS };

static unsigned long *counters[NR_COUNTERS];

static void count(enum counter counter)
{
	this_cpu_inc(counters[counter]);
}

static unsigned long sum_of(enum counter counter)
{
	unsigned long sum = 0;
	unsigned int cpu;

	for_each_possible_cpu(cpu)
		sum += __atomic_load_n(per_cpu_ptr(counters[counter], cpu), __ATOMIC_RELAXED);
	return sum;
}

/* ---- listeners, which may sleep ---- */

enum event { VOLUME_ADDED, VOLUME_GONE, LOG_COMMITTED };

struct notifier {
	struct list_head node;
	void (*call)(struct notifier *notifier, enum event event);
	unsigned long nr_heard;
};

static LIST_HEAD(chain);
static DEFINE_MUTEX(chain_lock);
DEFINE_STATIC_SRCU(chain_srcu);
static unsigned long nr_events;

static void register_notifier(struct notifier *notifier)
{
	mutex_lock(&chain_lock);
	list_add_tail_rcu(&notifier->node, &chain);
	mutex_unlock(&chain_lock);
}

/* On return, no thread is in the listener's function, and none will enter it. */
static void unregister_notifier(struct notifier *notifier)
{
	mutex_lock(&chain_lock);
	list_del_rcu(&notifier->node);
	mutex_unlock(&chain_lock);
	synchronize_srcu(&chain_srcu);
}

static void notify(enum event event)
{
	int idx = srcu_read_lock(&chain_srcu);
	struct notifier *notifier;

	__atomic_fetch_add(&nr_events, 1, __ATOMIC_RELAXED);
	list_for_each_entry_rcu(notifier, &chain, struct notifier, node)
		notifier->call(notifier, event);
	srcu_read_unlock(&chain_srcu, idx);
}

static void hear(struct notifier *notifier, enum event event)
{
	if (event != LOG_COMMITTED)
		sched_yield();
	__atomic_fetch_add(&notifier->nr_heard, 1, __ATOMIC_RELAXED);
}

/* ---- the log of a volume ---- */

struct log {
	struct workqueue_struct *wq;
	struct delayed_work commit;
	struct mutex lock;
	unsigned long next_seq;
	/* Only items of the ordered queue access these, and they run one at a time. */
	unsigned long logged_seq, committed_seq, nr_commits;
};

struct record {
	struct work_struct work;
	struct log *log;
	unsigned long seq;
};

static void record_work(struct work_struct *work)
{
	struct record *record = container_of(work, struct record, work);
	struct log *log = record->log;

	WARN_ON(record->seq != log->logged_seq + 1);
	log->logged_seq = record->seq;
	if (log->logged_seq - log->committed_seq >= COMMIT_BATCH)
		mod_delayed_work(log->wq, &log->commit, 0);
	else
		queue_delayed_work(log->wq, &log->commit, COMMIT_DELAY);
	free(record);
}

static void commit_work(struct work_struct *work)
{
	struct log *log = container_of(to_delayed_work(work), struct log, commit);

	WARN_ON(current_work() != work);
	if (log->committed_seq == log->logged_seq)
		return;
	log->committed_seq = log->logged_seq;
	log->nr_commits++;
	notify(LOG_COMMITTED);
}

static void log_write(struct log *log)
{
	struct record *record = kzalloc(sizeof(*record));

	INIT_WORK(&record->work, record_work);
	record->log = log;
	/* The records must be queued in the order of their numbers. */
	mutex_lock(&log->lock);
	record->seq = ++log->next_seq;
	WARN_ON(!queue_work(log->wq, &record->work));
	mutex_unlock(&log->lock);
}

static void log_init(struct log *log, unsigned int number)
{
	log->wq = alloc_ordered_workqueue("log/%u", WQ_MEM_RECLAIM, number);
	WARN_ON(!log->wq);
	mutex_init(&log->lock);
	INIT_DELAYED_WORK(&log->commit, commit_work);
}

/* Ends a log to which no thread writes any more. */
static void log_end(struct log *log)
{
	/* Flush the records first, because the last one arms the commit. */
	flush_workqueue(log->wq);
	flush_delayed_work(&log->commit);
	WARN_ON(cancel_delayed_work_sync(&log->commit));
	WARN_ON(log->committed_seq != log->next_seq);
	WARN_ON(log->next_seq != 0 && log->nr_commits == 0);
	destroy_workqueue(log->wq);
	mutex_destroy(&log->lock);
}

/* ---- volumes ---- */

/* The limits of a volume, which are replaced as a whole while they are read. */
struct limits {
	unsigned int max_sectors, generation, check;
	struct rcu_head rcu;
};

struct sector {
	unsigned long seq;
	unsigned char data[SECTOR_SIZE];
};

struct volume {
	struct list_head node;
	refcount_t refs;
	unsigned int number;
	struct limits __rcu *limits;
	struct workqueue_struct *io_wq;
	struct log log;
	struct work_struct reclaim;
	struct delayed_work scrub;
	struct rcu_work release;
	struct mutex lock;
	/* Guarded by the lock. */
	unsigned long next_seq, nr_dirty;
	struct sector sectors[NR_SECTORS];
	/* Only the scrubber accesses it. */
	unsigned int nr_scrubs;
};

static LIST_HEAD(volumes);
static DEFINE_MUTEX(volumes_lock);
static struct workqueue_struct *reclaim_wq;
static unsigned int nr_released;

static bool is_whole(const struct sector *sector)
{
	for (size_t i = 0; i < SECTOR_SIZE; i++)
		if (sector->data[i] != (unsigned char)sector->seq)
			return false;
	return true;
}

static void replace_limits(struct volume *volume, unsigned int generation)
{
	struct limits *limits = kzalloc(sizeof(*limits)), *old;

	limits->max_sectors = NR_SECTORS;
	limits->generation = generation;
	limits->check = ~generation;
	old = rcu_replace_pointer(volume->limits, limits, true);
	if (old) {
		/* Readers must not see this state. */
		if (generation % 8 == 0) {
			synchronize_rcu();
			old->check = old->generation;
			free(old);
		} else {
			kfree_rcu(old, rcu);
		}
	}
}

static bool is_within_limits(struct volume *volume, unsigned int sector)
{
	struct limits *limits;
	bool is_within;

	rcu_read_lock();
	limits = rcu_dereference(volume->limits);
	WARN_ON(limits->check != ~limits->generation);
	is_within = sector < limits->max_sectors;
	rcu_read_unlock();
	return is_within;
}

static void reclaim_work(struct work_struct *work)
{
	struct volume *volume = container_of(work, struct volume, reclaim);

	mutex_lock(&volume->lock);
	if (volume->nr_dirty > 0)
		count(RECLAIMED);
	volume->nr_dirty = 0;
	mutex_unlock(&volume->lock);
}

static void scrub_work(struct work_struct *work)
{
	struct volume *volume = container_of(to_delayed_work(work), struct volume, scrub);

	mutex_lock(&volume->lock);
	for (unsigned int i = 0; i < NR_SECTORS; i++)
		WARN_ON(!is_whole(&volume->sectors[i]));
	mutex_unlock(&volume->lock);
	replace_limits(volume, ++volume->nr_scrubs);
	/* This is rejected once the volume is being removed. */
	queue_delayed_work(system_unbound_wq, &volume->scrub, SCRUB_PERIOD);
}

/* Called when the last reference has been dropped, and no reader of the list can see the volume. */
static void release_work(struct work_struct *work)
{
	struct volume *volume = container_of(to_rcu_work(work), struct volume, release);
	struct limits *limits = rcu_dereference_protected(volume->limits, true);

	/* The last reference may have been dropped by an item of this queue. */
	destroy_workqueue(volume->io_wq);
	log_end(&volume->log);
	WARN_ON(work_busy(&volume->reclaim) != 0);
	WARN_ON(delayed_work_pending(&volume->scrub));
	for (unsigned int i = 0; i < NR_SECTORS; i++)
		WARN_ON(!is_whole(&volume->sectors[i]));
	WARN_ON(volume->next_seq != volume->log.next_seq);
	mutex_destroy(&volume->lock);
	free(limits);
	free(volume);
	__atomic_fetch_add(&nr_released, 1, __ATOMIC_RELEASE);
}

static void volume_put(struct volume *volume)
{
	if (refcount_dec_and_test(&volume->refs))
		WARN_ON(!queue_rcu_work(system_unbound_wq, &volume->release));
}

static struct volume *volume_get(unsigned int number)
{
	struct volume *volume, *found = NULL;

	rcu_read_lock();
	list_for_each_entry_rcu(volume, &volumes, struct volume, node) {
		if (volume->number == number && refcount_inc_not_zero(&volume->refs)) {
			found = volume;
			break;
		}
	}
	rcu_read_unlock();
	return found;
}

static void volume_add(unsigned int number)
{
	struct volume *volume = kzalloc(sizeof(*volume));

	volume->number = number;
	refcount_set(&volume->refs, 1);
	mutex_init(&volume->lock);
	volume->io_wq = alloc_workqueue("io/%u", WQ_UNBOUND | WQ_MEM_RECLAIM, 4, number);
	WARN_ON(!volume->io_wq);
	log_init(&volume->log, number);
	replace_limits(volume, 0);
	INIT_WORK(&volume->reclaim, reclaim_work);
	INIT_DELAYED_WORK(&volume->scrub, scrub_work);
	INIT_RCU_WORK(&volume->release, release_work);
	mutex_lock(&volumes_lock);
	list_add_tail_rcu(&volume->node, &volumes);
	mutex_unlock(&volumes_lock);
	queue_delayed_work(system_unbound_wq, &volume->scrub, SCRUB_PERIOD);
	notify(VOLUME_ADDED);
}

/* Removes a volume during I/O, which completes as usual. */
static void volume_remove(unsigned int number)
{
	struct volume *volume = volume_get(number);

	WARN_ON(!volume);
	mutex_lock(&volumes_lock);
	list_del_rcu(&volume->node);
	mutex_unlock(&volumes_lock);
	/* The item arms itself. This is rejected during the wait and afterwards. */
	disable_delayed_work_sync(&volume->scrub);
	WARN_ON(cancel_delayed_work_sync(&volume->scrub));
	/* Current I/O continues without the item. */
	disable_work_sync(&volume->reclaim);
	notify(VOLUME_GONE);
	/* Drop the reference of this function and that of the list. */
	volume_put(volume);
	volume_put(volume);
}

/* ---- I/O ---- */

struct submitter;

struct bio {
	struct submitter *submitter;
	struct volume *volume;
	refcount_t refs;
	unsigned int sector;
	bool is_write, is_stuck;
	unsigned int nr_refusals;
	/* The thread that sets this first ends the bio. */
	int is_claimed;
	int status;
	struct delayed_work io, timeout;
	struct callback_head done;
};

struct submitter {
	struct task_struct *task;
	unsigned int seed, nr_inside;
	unsigned long nr_ended;
};

static void bio_put(struct bio *bio)
{
	if (!refcount_dec_and_test(&bio->refs))
		return;
	volume_put(bio->volume);
	put_task_struct(bio->submitter->task);
	free(bio);
}

static bool bio_claim(struct bio *bio)
{
	return __atomic_exchange_n(&bio->is_claimed, 1, __ATOMIC_ACQ_REL) == 0;
}

/* Called by the thread that claimed the bio. */
static void bio_end(struct bio *bio, int status)
{
	bio->status = status;
	WARN_ON(task_work_add(bio->submitter->task, &bio->done, TWA_RESUME) != 0);
}

/* Runs on the submitter's thread, and drops the submitter's reference. */
static void bio_done(struct callback_head *work)
{
	struct bio *bio = container_of(work, struct bio, done);
	struct submitter *submitter = bio->submitter;

	WARN_ON(get_current() != submitter->task);
	WARN_ON(bio->status != (bio->is_stuck ? -ETIMEDOUT : 0) && bio->status != -ETIMEDOUT);
	count(bio->status ? TIMED_OUT : DONE);
	submitter->nr_inside--;
	submitter->nr_ended++;
	bio_put(bio);
}

static void read_sector(struct bio *bio)
{
	struct volume *volume = bio->volume;

	mutex_lock(&volume->lock);
	WARN_ON(!is_whole(&volume->sectors[bio->sector]));
	mutex_unlock(&volume->lock);
}

static void write_sector(struct bio *bio)
{
	struct volume *volume = bio->volume;
	struct sector *sector = &volume->sectors[bio->sector];
	unsigned long nr_dirty;

	mutex_lock(&volume->lock);
	sector->seq = ++volume->next_seq;
	memset(sector->data, (unsigned char)sector->seq, SECTOR_SIZE);
	nr_dirty = ++volume->nr_dirty;
	mutex_unlock(&volume->lock);
	log_write(&volume->log);
	if (nr_dirty > RECLAIM_ABOVE)
		queue_work(reclaim_wq, &volume->reclaim);
	/* Both queues make progress even if no memory is available. */
	if (nr_dirty > WAIT_ABOVE)
		flush_work(&volume->reclaim);
}

static void io_work(struct work_struct *work)
{
	struct bio *bio = container_of(to_delayed_work(work), struct bio, io);

	if (bio->nr_refusals > 0) {
		bio->nr_refusals--;
		count(RETRIED);
		/* The retry keeps this run's reference. */
		WARN_ON(!queue_delayed_work(bio->volume->io_wq, &bio->io, RETRY_DELAY));
		return;
	}
	if (!bio->is_stuck && bio_claim(bio)) {
		/* A cancelled timer does not drop its reference itself. */
		if (cancel_delayed_work(&bio->timeout))
			bio_put(bio);
		WARN_ON(!is_within_limits(bio->volume, bio->sector));
		if (bio->is_write)
			write_sector(bio);
		else
			read_sector(bio);
		bio_end(bio, 0);
	}
	bio_put(bio);
}

static void timeout_work(struct work_struct *work)
{
	struct bio *bio = container_of(to_delayed_work(work), struct bio, timeout);

	if (bio_claim(bio))
		bio_end(bio, -ETIMEDOUT);
	bio_put(bio);
}

static void submit_bio(struct submitter *submitter, struct volume *volume, unsigned int dice)
{
	struct bio *bio = kzalloc(sizeof(*bio));

	bio->submitter = submitter;
	bio->volume = volume;
	bio->sector = dice % NR_SECTORS;
	bio->is_write = dice % 3 != 0;
	bio->is_stuck = dice % 67 == 0;
	bio->nr_refusals = dice % 11 == 0 ? 2 : 0;
	get_task_struct(submitter->task);
	/* The references of the submitter, the execution and the timer. */
	refcount_set(&bio->refs, 1);
	refcount_inc(&bio->refs);
	refcount_inc(&bio->refs);
	INIT_DELAYED_WORK(&bio->io, io_work);
	INIT_DELAYED_WORK(&bio->timeout, timeout_work);
	init_task_work(&bio->done, bio_done);
	submitter->nr_inside++;
	count(SUBMITTED);
	WARN_ON(!queue_delayed_work(system_wq, &bio->timeout, bio->is_stuck ? STUCK_TIMEOUT : IO_TIMEOUT));
	WARN_ON(!queue_delayed_work(volume->io_wq, &bio->io, 0));
}

/* ---- users of the volumes ---- */

static unsigned int first_volume;

static void *submit(void *data)
{
	struct submitter *submitter = (struct submitter *)data;
	unsigned int dice = submitter->seed;
	unsigned long nr_wanted = 0;

	submitter->task = get_current();
	for (int i = 0; i < NR_BIOS; i++) {
		unsigned int first = __atomic_load_n(&first_volume, __ATOMIC_RELAXED);
		struct volume *volume;

		dice = dice * 1103515245u + 12345u;
		volume = volume_get(first + (dice >> 8) % NR_AT_ONCE);
		if (volume) {
			submit_bio(submitter, volume, dice >> 12);
			nr_wanted++;
		} else {
			count(NO_DEVICE);
		}
		task_work_run();
		while (submitter->nr_inside >= QUEUE_DEPTH) {
			afterwork_task_work_wait(-1);
			task_work_run();
		}
	}
	while (submitter->nr_inside > 0) {
		afterwork_task_work_wait(-1);
		task_work_run();
	}
	WARN_ON(submitter->nr_ended != nr_wanted);
	return NULL;
}

/* Replaces the oldest volume with a new one, and sometimes registers a listener. */
static void *manage(void *unused)
{
	struct notifier *notifier = NULL;
	unsigned int number;

	for (number = NR_AT_ONCE; number < NR_VOLUMES; number++) {
		unsigned long before = sum_of(SUBMITTED) + sum_of(NO_DEVICE);
		const unsigned long all = (unsigned long)NR_SUBMITTERS * NR_BIOS;

		/* Spread the changes over the whole I/O. */
		while (before < all && sum_of(SUBMITTED) + sum_of(NO_DEVICE) < before + all / NR_VOLUMES &&
		       sum_of(SUBMITTED) + sum_of(NO_DEVICE) < all)
			sched_yield();
		if (notifier) {
			unregister_notifier(notifier);
			free(notifier);
			notifier = NULL;
		} else {
			notifier = kzalloc(sizeof(*notifier));
			notifier->call = hear;
			register_notifier(notifier);
		}
		volume_add(number);
		volume_remove(number - NR_AT_ONCE);
		__atomic_store_n(&first_volume, number - NR_AT_ONCE + 1, __ATOMIC_RELAXED);
	}
	if (notifier) {
		unregister_notifier(notifier);
		free(notifier);
	}
	return unused;
}

/* ---- the module ---- */

static struct notifier always = { .call = hear };

static void volumes_init(void)
{
	for (int i = 0; i < NR_COUNTERS; i++) {
		counters[i] = alloc_percpu(unsigned long);
		WARN_ON(!counters[i]);
	}
	reclaim_wq = alloc_workqueue("reclaim", WQ_UNBOUND | WQ_MEM_RECLAIM | WQ_HIGHPRI, 0);
	WARN_ON(!reclaim_wq);
	register_notifier(&always);
	for (unsigned int number = 0; number < NR_AT_ONCE; number++)
		volume_add(number);
}

static void volumes_exit(void)
{
	for (unsigned int number = NR_VOLUMES - NR_AT_ONCE; number < NR_VOLUMES; number++)
		volume_remove(number);
	WARN_ON(!list_empty(&volumes));
	/*
	 * Timers and items drop the last references. Each release is queued after a grace period.
	 */
	while (__atomic_load_n(&nr_released, __ATOMIC_ACQUIRE) < NR_VOLUMES) {
		rcu_barrier();
		sched_yield();
	}
	destroy_workqueue(reclaim_wq);
	unregister_notifier(&always);
	WARN_ON(!list_empty(&chain));
	WARN_ON(always.nr_heard != nr_events);
	srcu_barrier(&chain_srcu);
	cleanup_srcu_struct(&chain_srcu);
	/* Wait until kfree_rcu has freed everything. */
	rcu_barrier();
}

int main(void)
{
	struct submitter submitters[NR_SUBMITTERS];
	pthread_t threads[NR_SUBMITTERS], manager;
	unsigned long sums[NR_COUNTERS];

	volumes_init();
	memset(submitters, 0, sizeof(submitters));
	WARN_ON(pthread_create(&manager, NULL, manage, NULL) != 0);
	for (unsigned int i = 0; i < NR_SUBMITTERS; i++) {
		submitters[i].seed = i * 7 + 1;
		WARN_ON(pthread_create(&threads[i], NULL, submit, &submitters[i]) != 0);
	}
	for (unsigned int i = 0; i < NR_SUBMITTERS; i++)
		WARN_ON(pthread_join(threads[i], NULL) != 0);
	WARN_ON(pthread_join(manager, NULL) != 0);
	volumes_exit();
	for (int i = 0; i < NR_COUNTERS; i++) {
		sums[i] = sum_of((enum counter)i);
		free_percpu(counters[i]);
	}
	WARN_ON(sums[SUBMITTED] + sums[NO_DEVICE] != (unsigned long)NR_SUBMITTERS * NR_BIOS);
	WARN_ON(sums[SUBMITTED] != sums[DONE] + sums[TIMED_OUT]);
	printf("volumes: %d came and went; %lu bios done, %lu timed out, %lu found none; %lu retries, %lu reclaims, %lu events\n",
	       NR_VOLUMES, sums[DONE], sums[TIMED_OUT], sums[NO_DEVICE], sums[RETRIED], sums[RECLAIMED], nr_events);
	return 0;
}
