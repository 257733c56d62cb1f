/* SPDX-License-Identifier: MIT
 * The hash that selects paths: MurmurHash3 x86_32 over the words of a 5-tuple (flow_hash.py is its twin in Python).
 * The words are scrambled once; each level of a path then costs four short rounds with a seed of its own.
 */
#ifndef FLOW_HASH_H
#define FLOW_HASH_H

#include <linux/types.h>

#define HASHED_WORDS 4
#define HASHED_BYTES (4 * HASHED_WORDS)

static __always_inline __u32 rotate(__u32 value, int bits)
{
	return value << bits | value >> (32 - bits);
}

static __always_inline __u32 scramble(__u32 word)
{
	return rotate(word * 0xcc9e2d51, 15) * 0x1b873593;
}

static __always_inline __u32 hash_scrambled(const __u32 *scrambled, __u32 h)
{
	for (int i = 0; i < HASHED_WORDS; i++)
		h = rotate(h ^ scrambled[i], 13) * 5 + 0xe6546b64;
	h ^= HASHED_BYTES;
	h = (h ^ h >> 16) * 0x85ebca6b;
	h = (h ^ h >> 13) * 0xc2b2ae35;
	return h ^ h >> 16;
}

/* A hash as a choice in 0..width-1, by its high bits. */
static __always_inline __u32 choose(__u32 hash, __u32 width)
{
	return (__u64)hash * width >> 32;
}

#endif
