package verbs

var CheckTransition = checkTransition
