/* Floating point by SSE and by x87: numbers whose bits are known, rounding, conversions, and the C library's functions. */
#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static uint64_t bits(double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static void same(double value, uint64_t expected, const char *what)
{
    if (bits(value) != expected) {
        printf("%s: %a (%#llx) instead of %#llx\n", what, value, (unsigned long long)bits(value),
               (unsigned long long)expected);
        failures++;
    }
}

static void must(int holds, const char *what)
{
    if (!holds) {
        printf("%s does not hold\n", what);
        failures++;
    }
}

int main(void)
{
    volatile double one = 1, three = 3, ten = 10, tiny = DBL_MIN, two = 2, big = DBL_MAX, minus = -1, zero = 0, half = 0.5;
    volatile float third = 1.0f / 3;
    volatile long double extended = 1;

    same(one / three, 0x3fd5555555555555, "1/3");
    same(one / ten + two / ten, 0x3fd3333333333334, "0.1+0.2");
    same(sqrt(two), 0x3ff6a09e667f3bcd, "sqrt 2");
    same(tiny / ten, 0x000199999999999a, "a subnormal");
    same(big * two, 0x7ff0000000000000, "an overflow");
    must(isnan(sqrt(minus)) && isnan(zero / zero) && isinf(one / zero), "what is not a number");
    same((double)third, 0x3fd5555560000000, "a float widened");
    must((int)(-three + half) == -2 && lrint(two + half) == 2 && lrint(three + half) == 4 && llround(two + half) == 3, "conversions to integers");
    must((double)(uint64_t)18446744073709549568.0 == 18446744073709549568.0, "a large unsigned");

    for (int mode = 0; mode < 3; mode++) {
        static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
        static const uint64_t thirds[] = {0x3fd5555555555556, 0x3fd5555555555555, 0x3fd5555555555555};
        fesetround(modes[mode]);
        same(one / three, thirds[mode], "1/3, rounded otherwise");
        fesetround(FE_TONEAREST);
    }
    feclearexcept(FE_ALL_EXCEPT);
    volatile double inexact = one / three;
    (void)inexact;
    must(fetestexcept(FE_INEXACT) && !fetestexcept(FE_DIVBYZERO), "the inexact flag");

    same(sin(one), 0x3feaed548f090cee, "sin 1");
    same(cos(one), 0x3fe14a280fb5068c, "cos 1");
    same(exp(one), 0x4005bf0a8b145769, "exp 1");
    same(log(ten), 0x40026bb1bbb55516, "log 10");
    same(pow(two, half), 0x3ff6a09e667f3bcd, "pow 2 0.5");
    same(atan2(one, one), 0x3fe921fb54442d18, "atan2 1 1");

    extended = extended / 3;
    uint64_t mantissa;
    memcpy(&mantissa, (const void *)&extended, sizeof mantissa);
    must(mantissa == 0xaaaaaaaaaaaaaaab, "an extended third");
    must(fabsl(sinl(one) - 0.841470984807896506652502321630298999623L) < 1e-18L, "sin 1, extended");
    must(fabsl(expl(one) - 2.718281828459045235360287471352662497757L) < 4e-19L, "exp 1, extended");

    double sum = 0;
    for (int i = 1; i <= 1000; i++)
        sum += 1.0 / i;
    same(sum, 0x401df11f45f4e618, "the thousandth harmonic number");
    must(strtod("2.2250738585072014e-308", NULL) == DBL_MIN, "strtod");
    char text[64];
    snprintf(text, sizeof text, "%.17g %a", 0.1, one / three);
    must(strcmp(text, "0.10000000000000001 0x1.5555555555555p-2") == 0, "printf of doubles");
    return failures != 0;
}
