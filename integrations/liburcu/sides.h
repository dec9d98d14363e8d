/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The interface to one library's measured code. */
struct side {
	void (*begin)(void);
	void (*end)(void);
	long (*pairs)(long count);
	long (*nested)(long count);
	long (*calls)(long count);
	long (*waits)(long count);
};

extern const struct side ours_side, theirs_side;
