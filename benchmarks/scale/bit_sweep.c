/* The update of the bits of a Boolean matrix factorisation, as plain C: what `scaling.py` compares
   the sampler with. Each bit in turn is proposed to flip (Metropolis), with weights w of ones and -w
   of zeros and prior log odds of 0. Lines are packed in 64-bit words. */
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Draw the bits of each line, a word of up to 64 factors, given partner (rank, words). */
void update(const uint64_t *restrict ones, long lines, long words,
            const uint64_t *restrict partner, long rank, uint64_t *restrict bits, float w,
            uint64_t *seed, uint64_t *restrict later, uint64_t *restrict earlier) {
  uint64_t s = *seed;
  for (long i = 0; i < lines; i++, ones += words) {
    memset(later + (rank - 1) * words, 0, 8 * words);
    for (long k = rank - 1; k > 0; k--) {
      uint64_t mask = -(bits[i] >> k & 1), *to = later + (k - 1) * words;
      const uint64_t *used = partner + k * words, *from = later + k * words;
      for (long j = 0; j < words; j++) to[j] = from[j] | (mask & used[j]);
    }
    memset(earlier, 0, 8 * words);
    for (long k = 0; k < rank; k++) {
      const uint64_t *used = partner + k * words, *after = later + k * words;
      long gain = 0;
      for (long j = 0; j < words; j++) {
        uint64_t open = used[j] & ~(earlier[j] | after[j]);
        gain += __builtin_popcountll(open & ones[j]) - __builtin_popcountll(open & ~ones[j]);
      }
      float odds = w * (bits[i] >> k & 1 ? -gain : gain);
      s ^= s >> 12, s ^= s << 25, s ^= s >> 27; /* xorshift64* */
      if (logf(((s * 0x2545F4914F6CDD1DULL) >> 40) * 0x1p-24f + 0x1p-25f) < odds) bits[i] ^= 1ULL << k;
      uint64_t mask = -(bits[i] >> k & 1);
      for (long j = 0; j < words; j++) earlier[j] |= mask & used[j];
    }
  }
  *seed = s;
}

/* Pack the bits of the lines along these: (lines) to (rank, ceil(lines / 64)). */
void pack(const uint64_t *bits, long lines, long rank, uint64_t *packed) {
  long words = (lines + 63) / 64;
  memset(packed, 0, 8 * rank * words);
  for (long i = 0; i < lines; i++)
    for (long k = 0; k < rank; k++) packed[k * words + i / 64] |= (bits[i] >> k & 1) << i % 64;
}

/* Read words, many times over: the bandwidth of memory where they do not fit into a cache. */
uint64_t read_words(const uint64_t *a, long n, long times) {
  uint64_t sum = 0;
  for (long t = 0; t < times; t++)
    for (long j = 0; j < n; j++) sum += a[j] ^ t;
  return sum;
}

/* Six operations a word, one of them a population count: the rate where words fit into a cache. */
uint64_t count_words(const uint64_t *a, const uint64_t *b, long n, long times) {
  uint64_t sum = 0;
  for (long t = 0; t < times; t++)
    for (long j = 0; j < n; j++) {
      uint64_t open = a[j] & ~(b[j] | t);
      sum += __builtin_popcountll(open) + (open ^ b[j]);
    }
  return sum;
}
