/* What makes a processor's earlier stores visible to all before its later loads; nothing with UNFENCED. */
#ifndef FENCE_H
#define FENCE_H

#ifdef UNFENCED
#define fence() asm volatile("" : : : "memory")
#else
#define fence() asm volatile("mfence" : : : "memory")
#endif

#endif
