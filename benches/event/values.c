#include "values.h"

#include <string.h>

char text_8[8 + 1], text_64[64 + 1], text_512[512 + 1], text_4096[4096 + 1];
uint8_t bytes[64];
uint32_t numbers[NUMBERS];
volatile size_t number_count = NUMBERS;

void fill_values(void)
{
	memset(text_8, 'a', sizeof text_8 - 1);
	memset(text_64, 'b', sizeof text_64 - 1);
	memset(text_512, 'c', sizeof text_512 - 1);
	memset(text_4096, 'd', sizeof text_4096 - 1);
	memset(bytes, 7, sizeof bytes);
	for (uint32_t index = 0; index < NUMBERS; index++)
		numbers[index] = index * index;
}
