	.text
	.globl start_of_all
start_of_all:
	ret
