/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * liburcu's <urcu.h>, implemented by the library afterwork. The common names map to the flavor
 * memb, or to mb or signal if RCU_MB or RCU_SIGNAL is defined. These three flavors are the same
 * here.
 *
 * Sections are inlined, whether or not _LGPL_SOURCE is defined: this header is not part of liburcu,
 * and the first line states its license. urcu-flavors.h and the book's page "From C and C++" list
 * the differences.
 */
#include "urcu-flavors.h"

#ifndef URCU_API_MAP
#define URCU_API_MAP
#endif
#ifndef AFTERWORK_URCU_FLAVOR
#if defined(RCU_MB)
#define AFTERWORK_URCU_FLAVOR mb
#elif defined(RCU_SIGNAL)
#define AFTERWORK_URCU_FLAVOR signal
#else
#define AFTERWORK_URCU_FLAVOR memb
#endif
#endif
#include "urcu-map.h"
