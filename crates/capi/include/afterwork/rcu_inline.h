/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The inlined read side of the library's RCU, for rcupdate.h and urcu.h. All names have a prefix.
 *
 * The library asserts that it has the same layout (src/inline.rs). A program passes the version of
 * the layout for which it was compiled (AFTERWORK_RCU_LAYOUT). If the library has a different
 * layout, the program calls the library's functions instead.
 */
#ifndef AFTERWORK_RCU_INLINE_H
#define AFTERWORK_RCU_INLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#define AFTERWORK_ASSERT(cond, text) static_assert(cond, text)
#else
#define AFTERWORK_ASSERT(cond, text) _Static_assert(cond, text)
#endif

/**
 * struct rcu_head - a callback that waits for its grace period
 *
 * It is part of the caller's structure, and needs no initialization. The library owns it from the
 * call to call_rcu until it invokes the callback.
 */
struct rcu_head {
	struct rcu_head *next;
	void (*func)(struct rcu_head *head);
};

AFTERWORK_ASSERT(sizeof(struct rcu_head) == 16, "an rcu_head has 16 bytes");

/* The version of the following layout. */
#define AFTERWORK_RCU_LAYOUT 2

/* The bits of afterwork_slot.ctr that contain the nesting depth of sections. */
#define AFTERWORK_RCU_NEST UINT64_C(0xffff)
/*
 * The bits of afterwork_slot.flags that require a call when a section begins, when it ends, and at
 * a report.
 */
#define AFTERWORK_RCU_PARK UINT32_C(0x8)
#define AFTERWORK_RCU_AT_UNLOCK UINT32_C(0x7)
#define AFTERWORK_RCU_ASKED UINT32_C(0x3)

/* The state of a reader thread. The library has more fields after these, which are private. */
struct afterwork_slot {
	uint64_t ctr;
	uint32_t flags;
	uint32_t nr_loops;
};

/*
 * Points to this thread's slot, or to a stand-in that turns every operation into a call.
 */
struct afterwork_reader {
	struct afterwork_slot *slot;
};

AFTERWORK_ASSERT(offsetof(struct afterwork_slot, ctr) == 0, "the state comes first");
AFTERWORK_ASSERT(offsetof(struct afterwork_slot, flags) == 8, "then what is asked");
AFTERWORK_ASSERT(offsetof(struct afterwork_slot, nr_loops) == 12, "then the readers that report");
AFTERWORK_ASSERT(sizeof(struct afterwork_reader) == sizeof(void *), "a pointer");

extern __thread struct afterwork_reader aw_rcu_reader __attribute__((tls_model("initial-exec")));

/*
 * The address of the value that an outermost section copies to its slot when it begins. The
 * address is constant, and the same for all threads.
 */
extern const uint64_t *const aw_rcu_first_level;

/* The library's own symbols, which are documented at their callers in rcupdate.h and urcu.h. */
void aw_rcu_lock_slowly(struct afterwork_reader *reader, unsigned int layout);
void aw_rcu_read_unlock(void);
void aw_rcu_leave_parking(void);
void aw_rcu_report(void);
void aw_qsbr_answer(void);
void aw_qsbr_report_slowly(struct afterwork_reader *reader, unsigned int layout);

#define AFTERWORK_LIKELY(cond) __builtin_expect(!!(cond), 1)
#define AFTERWORK_UNLIKELY(cond) __builtin_expect(!!(cond), 0)

/*
 * Prevents reordering by the compiler. The other side prevents reordering by the CPU: it makes
 * every thread of the process execute a barrier. If the kernel does not support this, threads use
 * the stand-in.
 */
#define AFTERWORK_LIGHT_BARRIER() __asm__ __volatile__("" : : : "memory")

/*
 * True if any of the flags in MASK is set. They are all in the lowest byte. An atomic load would
 * take longer.
 */
#if defined(__x86_64__) && defined(__GCC_ASM_FLAG_OUTPUTS__)
#define AFTERWORK_HAS_FLAG(slot, mask)                                           \
	__extension__({                                                          \
		int afterwork_has;                                               \
		__asm__ __volatile__("test{b %2, %1| %b1, %2}"                   \
				     : "=@ccnz"(afterwork_has)                   \
				     : "m"((slot)->flags), "i"((int)(mask))      \
				     : "memory");                                \
		afterwork_has;                                                   \
	})
#else
#define AFTERWORK_HAS_FLAG(slot, mask) ((__atomic_load_n(&(slot)->flags, __ATOMIC_RELAXED) & (mask)) != 0)
#endif

/*
 * AFTERWORK_STORE stores a pointer, and AFTERWORK_EXCHANGE exchanges one. The value is converted as
 * in an assignment, even to a base class, and with the same warnings. gcc's own functions would use
 * the address without converting it.
 */
#define AFTERWORK_STORE(place, value, order)                          \
	__extension__({                                               \
		__typeof__(*(place)) afterwork_stored = (value);      \
		__atomic_store_n((place), afterwork_stored, (order)); \
	})
#define AFTERWORK_EXCHANGE(place, value, order)                             \
	__extension__({                                                     \
		__typeof__(*(place)) afterwork_given = (value);             \
		__atomic_exchange_n((place), afterwork_given, (order));     \
	})

/*
 * Begins a section. Compares the nesting depth as a 16-bit value, so that the compiler needs no
 * mask.
 */
static inline void afterwork_read_lock(void)
{
	struct afterwork_slot *slot = aw_rcu_reader.slot;
	uint64_t ctr = __atomic_load_n(&slot->ctr, __ATOMIC_RELAXED);

	if (AFTERWORK_LIKELY((uint16_t)ctr == 0)) {
		ctr = __atomic_load_n(aw_rcu_first_level, __ATOMIC_ACQUIRE);
		__atomic_store_n(&slot->ctr, ctr, __ATOMIC_RELAXED);
		AFTERWORK_LIGHT_BARRIER();
		if (AFTERWORK_UNLIKELY(AFTERWORK_HAS_FLAG(slot, AFTERWORK_RCU_PARK)))
			aw_rcu_leave_parking();
	} else if (AFTERWORK_LIKELY((uint16_t)ctr < AFTERWORK_RCU_NEST - 1)) {
		__atomic_store_n(&slot->ctr, ctr + 1, __ATOMIC_RELAXED);
	} else {
		aw_rcu_lock_slowly(&aw_rcu_reader, AFTERWORK_RCU_LAYOUT);
	}
}

/*
 * Ends the section that this thread began most recently. If the thread is not in a section, or uses
 * the stand-in, subtracting one from the depth gives one of the two largest depths.
 */
static inline void afterwork_read_unlock(void)
{
	struct afterwork_slot *slot = aw_rcu_reader.slot;
	uint64_t outer = __atomic_load_n(&slot->ctr, __ATOMIC_RELAXED) - 1;

	if (AFTERWORK_LIKELY((uint16_t)outer == 0)) {
		__atomic_store_n(&slot->ctr, outer, __ATOMIC_RELEASE);
		AFTERWORK_LIGHT_BARRIER();
		if (AFTERWORK_UNLIKELY(AFTERWORK_HAS_FLAG(slot, AFTERWORK_RCU_AT_UNLOCK)))
			aw_rcu_report();
	} else if (AFTERWORK_LIKELY((uint16_t)outer < AFTERWORK_RCU_NEST - 1)) {
		__atomic_store_n(&slot->ctr, outer, __ATOMIC_RELEASE);
	} else {
		aw_rcu_read_unlock();
	}
}

/* Reports that this thread, which is an online reader, holds no values that it has read. */
static inline void afterwork_quiescent_state(void)
{
	struct afterwork_slot *slot = aw_rcu_reader.slot;

	if (AFTERWORK_LIKELY(__atomic_load_n(&slot->nr_loops, __ATOMIC_RELAXED) == 1)) {
		uint64_t ctr = __atomic_load_n(&slot->ctr, __ATOMIC_RELAXED);
		uint64_t next = __atomic_load_n(aw_rcu_first_level, __ATOMIC_ACQUIRE);

		if (ctr != next) {
			if (AFTERWORK_UNLIKELY((ctr & AFTERWORK_RCU_NEST) != 1))
				return;
			__atomic_store_n(&slot->ctr, next, __ATOMIC_RELEASE);
		}
		if (AFTERWORK_UNLIKELY(AFTERWORK_HAS_FLAG(slot, AFTERWORK_RCU_ASKED)))
			aw_qsbr_answer();
	} else {
		aw_qsbr_report_slowly(&aw_rcu_reader, AFTERWORK_RCU_LAYOUT);
	}
}

#ifdef __cplusplus
}
#endif

#endif
