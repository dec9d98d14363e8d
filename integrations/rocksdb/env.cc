// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A rocksdb::Env whose background pools are queues of afterwork, and Env::Default() to return it.
//
// RocksDB runs flushes and compactions in thread pools, one for each priority, each with its own
// number of threads. Here each pool is a queue with that number as its limit, and all queues share
// their workers: a worker that one pool does not need serves the other, and a worker that no pool
// needs exits. All other operations are forwarded to the Env of RocksDB.
//
// Preloaded (LD_PRELOAD), the library serves existing programs: they and librocksdb call
// Env::Default() by its symbol. With AFTERWORK_ROCKSDB_REPORT set it prints statistics at exit.
#include <afterwork/workqueue.h>

#include <rocksdb/env.h>

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>

namespace {

using rocksdb::Env;

class Pool;

// A scheduled job. Its pool's list owns it until it starts, and then the worker owns it.
struct Job {
	work_struct work;
	Pool *pool;
	void (*function)(void *);
	void *arg;
	void *tag;
	void (*unscheduled)(void *);
	std::list<Job *>::iterator place;
};

class Pool {
public:
	void init(const char *name, int number)
	{
		name_ = name;
		limit_ = number;
		queue_ = alloc_workqueue("rocksdb-%s", WQ_UNBOUND, at_once(number), name);
		if (!queue_) {
			std::fprintf(stderr, "rocksdb-%s: no queue\n", name);
			std::abort();
		}
	}

	void schedule(void (*function)(void *), void *arg, void *tag, void (*unscheduled)(void *))
	{
		auto *job = new Job{ {}, this, function, arg, tag, unscheduled, {} };
		INIT_WORK(&job->work, start);
		const std::lock_guard<std::mutex> guard(lock_);
		job->place = waiting_.insert(waiting_.end(), job);
		// The lock is held, so that a thread that finds the job in the list can cancel it.
		queue_work(queue_, &job->work);
	}

	// Cancels the jobs that have not started; returns their number.
	int unschedule(void *tag)
	{
		std::list<Job *> taken;
		{
			const std::lock_guard<std::mutex> guard(lock_);
			for (auto it = waiting_.begin(); it != waiting_.end();) {
				auto here = it++;
				// A job that cannot be cancelled is starting; its worker needs this lock.
				if ((*here)->tag == tag && cancel_work(&(*here)->work))
					taken.splice(taken.end(), waiting_, here);
			}
		}
		for (Job *job : taken) {
			// Does not block, because the item is not pending. The job then belongs to this thread.
			cancel_work_sync(&job->work);
			if (job->unscheduled)
				job->unscheduled(job->arg);
			delete job;
		}
		nr_taken_back_ += static_cast<unsigned long>(taken.size());
		return static_cast<int>(taken.size());
	}

	unsigned int nr_waiting() const
	{
		const std::lock_guard<std::mutex> guard(lock_);
		return static_cast<unsigned int>(waiting_.size());
	}

	void set_limit(int number, bool only_more)
	{
		const std::lock_guard<std::mutex> guard(lock_);
		if (only_more && number <= limit_)
			return;
		limit_ = number;
		most_ = std::max(most_, number);
		workqueue_set_max_active(queue_, at_once(number));
	}

	int limit() const
	{
		const std::lock_guard<std::mutex> guard(lock_);
		return limit_;
	}

	void report() const
	{
		std::fprintf(stderr, "afterwork: pool %s: limit %d, at most %d at once, %lu run, %lu taken back, %u left\n", name_,
			     std::max(most_, limit_), peak_.load(), nr_run_.load(), nr_taken_back_.load(), nr_waiting());
	}

private:
	// RocksDB uses no pool without threads; a queue's limit is at least one.
	static int at_once(int number)
	{
		return std::clamp(number, 1, 512);
	}

	static void start(work_struct *work)
	{
		auto *job = container_of(work, Job, work);
		Pool *pool = job->pool;
		{
			const std::lock_guard<std::mutex> guard(pool->lock_);
			pool->waiting_.erase(job->place);
		}
		const int now = ++pool->nr_running_;
		int peak = pool->peak_.load();
		while (now > peak && !pool->peak_.compare_exchange_weak(peak, now))
			;
		// The job blocks on files and other jobs, so the pool must start other workers.
		afterwork_blocking(run, job);
		--pool->nr_running_;
		++pool->nr_run_;
		delete job;
	}

	static long run(void *it)
	{
		auto *job = static_cast<Job *>(it);
		job->function(job->arg);
		return 0;
	}

	const char *name_ = "";
	workqueue_struct *queue_ = nullptr;
	mutable std::mutex lock_;
	std::list<Job *> waiting_;
	int limit_ = 0, most_ = 0;
	std::atomic<int> nr_running_{ 0 }, peak_{ 0 };
	std::atomic<unsigned long> nr_run_{ 0 }, nr_taken_back_{ 0 };
};

class QueuesEnv : public rocksdb::EnvWrapper {
public:
	explicit QueuesEnv(Env *base) : EnvWrapper(base)
	{
		static const char *const names[] = { "bottom", "low", "high" };
		for (int i = 0; i < NR_POOLS; i++)
			pools_[i].init(names[i], base->GetBackgroundThreads(static_cast<Priority>(i)));
	}

	const char *Name() const override
	{
		return "afterwork";
	}

	void Schedule(void (*function)(void *), void *arg, Priority pri, void *tag, void (*unscheduled)(void *)) override
	{
		pools_[pri].schedule(function, arg, tag, unscheduled);
	}

	int UnSchedule(void *tag, Priority pri) override
	{
		return pools_[pri].unschedule(tag);
	}

	unsigned int GetThreadPoolQueueLen(Priority pri) const override
	{
		return pools_[pri].nr_waiting();
	}

	void SetBackgroundThreads(int number, Priority pri) override
	{
		pools_[pri].set_limit(number, false);
	}

	int GetBackgroundThreads(Priority pri) override
	{
		return pools_[pri].limit();
	}

	void IncBackgroundThreadsIfNeeded(int number, Priority pri) override
	{
		pools_[pri].set_limit(number, true);
	}

	// No threads can be reserved: workers are started when they are needed.
	int ReserveThreads(int, Priority) override
	{
		return 0;
	}

	int ReleaseThreads(int, Priority) override
	{
		return 0;
	}

	// Workers serve all pools, so a pool cannot have its own priority.
	void LowerThreadPoolIOPriority(Priority) override
	{
	}

	void LowerThreadPoolCPUPriority(Priority) override
	{
	}

	rocksdb::Status LowerThreadPoolCPUPriority(Priority, rocksdb::CpuPriority) override
	{
		return rocksdb::Status::NotSupported("workers serve all pools");
	}

	void report() const
	{
		for (const Pool &pool : pools_)
			pool.report();
	}

private:
	// RocksDB's own Env has no pool for the priority USER.
	static constexpr int NR_POOLS = Env::Priority::HIGH + 1;

	Pool pools_[NR_POOLS];
};

QueuesEnv *make()
{
	auto theirs = reinterpret_cast<Env *(*)()>(dlsym(RTLD_NEXT, "_ZN7rocksdb3Env7DefaultEv"));
	if (!theirs) {
		std::fputs("afterwork: there is no rocksdb::Env::Default() to stand in for\n", stderr);
		std::abort();
	}
	return new QueuesEnv(theirs());
}

// This object is never destroyed, because RocksDB uses it until the process ends.
QueuesEnv *the_env()
{
	static QueuesEnv *const env = make();
	return env;
}

const struct AtExit {
	~AtExit()
	{
		if (std::getenv("AFTERWORK_ROCKSDB_REPORT"))
			the_env()->report();
	}
} at_exit;

} // namespace

rocksdb::Env *rocksdb::Env::Default()
{
	return the_env();
}
