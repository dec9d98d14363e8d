/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Conversions of jiffies, which are milliseconds: HZ is 1000.
 *
 * This is a separate header, as in the kernel, because ports often define these functions
 * themselves.
 */
#ifndef AFTERWORK_JIFFIES_H
#define AFTERWORK_JIFFIES_H

#include <limits.h>

#include <afterwork/workqueue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* msecs_to_jiffies - convert milliseconds to jiffies. */
static inline unsigned long msecs_to_jiffies(unsigned int msecs)
{
	return msecs;
}

/* jiffies_to_msecs - convert jiffies to milliseconds. Uses only the lower half of the word. */
static inline unsigned int jiffies_to_msecs(unsigned long jiffies)
{
	return (unsigned int)(jiffies & UINT_MAX);
}

#ifdef __cplusplus
}
#endif

#endif
