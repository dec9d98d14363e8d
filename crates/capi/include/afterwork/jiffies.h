/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Conversions of jiffies, which are milliseconds: HZ is 1000.
 *
 * A header of its own, as in the kernel, because ports often have these functions already. No other header includes it.
 */
#ifndef AFTERWORK_JIFFIES_H
#define AFTERWORK_JIFFIES_H

#include <limits.h>

#include <afterwork/workqueue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* msecs_to_jiffies - the jiffies of a time in milliseconds. */
static inline unsigned long msecs_to_jiffies(unsigned int msecs)
{
	return msecs;
}

/* jiffies_to_msecs - the milliseconds of a number of jiffies, of which the lower half of the word counts. */
static inline unsigned int jiffies_to_msecs(unsigned long jiffies)
{
	return (unsigned int)(jiffies & UINT_MAX);
}

#ifdef __cplusplus
}
#endif

#endif
