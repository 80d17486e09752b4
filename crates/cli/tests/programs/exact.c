/* A program that bears no floating-point exception: the first one kills it. Nor may its flags
 * change. */
#define _GNU_SOURCE
#include <tompion/tompion.h>

#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
	const uint32_t signalling = 0x7fa00000;
	float odd;
	memcpy(&odd, &signalling, sizeof odd);
	double quiet = strtod("nan", NULL);
	uint64_t large = UINT64_MAX - 2;
	double huge = 1.7e308;
	double third = 1.0 / 3;

	feclearexcept(FE_ALL_EXCEPT);
	feenableexcept(FE_ALL_EXCEPT);
	fesetround(FE_UPWARD);
	for (int i = 0; i < 60; i++) {
		TOMPION_EVENT(exact, step, (i32, i, i), (f32, odd, odd), (f64, quiet, quiet), (u64, large, large),
			      (f64, huge, huge), (f64, third, third));
		usleep(1000);
	}
	printf("exceptions %d, rounding %s\n", fetestexcept(FE_ALL_EXCEPT),
	       fegetround() == FE_UPWARD ? "upwards" : "changed");
	return 0;
}
