/* The update of the bits of a Boolean matrix factorisation, as plain C: what `scaling.py` compares
   the sampler with. Proposes to flip each bit in turn (Metropolis). Lines, one by one, are packed in
   64-bit words; the weights of ones and zeros are w and -w, and the prior log odds are 0. */
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t next(uint64_t *s) { /* xorshift64* */
  *s ^= *s >> 12, *s ^= *s << 25, *s ^= *s >> 27;
  return *s * 0x2545F4914F6CDD1DULL;
}

/* Draw bits[line] (a word of up to 64 factors) given partner (rank, words); returns a seed. */
uint64_t update(const uint64_t *ones, long lines, long words, const uint64_t *partner, long rank,
                uint64_t *bits, float w, uint64_t seed) {
  uint64_t later[64][512], earlier[512];
  for (long i = 0; i < lines; i++, ones += words) {
    memset(later[rank - 1], 0, 8 * words);
    for (long k = rank - 1; k > 0; k--) {
      uint64_t mask = -(bits[i] >> k & 1);
      const uint64_t *used = partner + k * words;
      for (long j = 0; j < words; j++) later[k - 1][j] = later[k][j] | (mask & used[j]);
    }
    memset(earlier, 0, 8 * words);
    for (long k = 0; k < rank; k++) {
      const uint64_t *used = partner + k * words;
      long gain = 0;
      for (long j = 0; j < words; j++) {
        uint64_t open = used[j] & ~(earlier[j] | later[k][j]);
        gain += __builtin_popcountll(open & ones[j]) - __builtin_popcountll(open & ~ones[j]);
      }
      float odds = w * (bits[i] >> k & 1 ? -gain : gain);
      if (odds > 0 || logf((next(&seed) >> 40) * 0x1p-24f + 0x1p-25f) < odds) bits[i] ^= 1ULL << k;
      uint64_t mask = -(bits[i] >> k & 1);
      for (long j = 0; j < words; j++) earlier[j] |= mask & used[j];
    }
  }
  return seed;
}

/* Read n words, `times` over: for the bandwidth of memory. */
uint64_t read_words(const uint64_t *a, long n, long times) {
  uint64_t sum = 0;
  for (long t = 0; t < times; t++)
    for (long j = 0; j < n; j++) sum += a[j] ^ t;
  return sum;
}

/* Six operations a word on words in the first cache, as an update has: the integer rate. */
uint64_t count_words(const uint64_t *a, const uint64_t *b, long n, long times) {
  uint64_t sum = 0;
  for (long t = 0; t < times; t++)
    for (long j = 0; j < n; j++) {
      uint64_t open = a[j] & ~(b[j] | t);
      sum += __builtin_popcountll(open) + (open ^ b[j]);
    }
  return sum;
}
