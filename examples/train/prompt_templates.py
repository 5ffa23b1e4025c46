# SPDX-License-Identifier: MIT
"""Instructions in templates: chat, code, exercises in mathematics, tasks with a passage of text.

A line is a template, in the language of prompt_words.py; \\n in it is a line end.
"""

from prompt_words import LISTS, lines

# "idea" and "thing" come from a dictionary: abstract nouns, and names of things that take an article.
CHAT = r"""
Explain {topic} to {audience}.
Explain {idea} to {audience}.
What is {topic}, and why does it matter?
What is the difference between {topic} and {topic2}?
What do {topic} and {topic2} have in common?
Compare {a_thing} with {a_thing2}.
Compare {a_animal} and {a_animal2} in a table with four rows.
Tell me about {topic}.
Tell me something interesting about {topic}.
Give me {n 3-10} facts about {topic}.
Give me {n 3-7} facts about {figure}.
Give me {n 3-7} facts about the {animal}.
List {n 3-10} advantages and disadvantages of {topic}.
List the pros and cons of {hobby} as a hobby.
List {n 5-12} things that one needs for {hobby}.
List {n 4-10} words that are related to {idea}.
List {n 3-8} common mistakes that beginners make in {hobby}.
List {n 3-8} questions that a journalist could ask {a_job}.
List {n 3-8} ideas for {occasion}.
List {n 3-6} dishes that use {food}, with one sentence on each.
What are the main causes of {idea}?
What are the effects of {topic} on everyday life?
What are some common misconceptions about {topic}?
What are the basic steps of {skill}?
What should I know before I travel to {place}?
What would happen if there were no {topic}?
What would a world without {idea} look like?
What is {a_thing} used for?
What is {a_thing} made of, and how is it made?
What does the word "{idea}" mean? Use it in {n 2-4} sentences.
Define "{idea}" in one sentence.
Define {idea} and give {n 2-4} examples.
Give a synonym and an antonym of "{idea}".
What is the opposite of {idea}? Explain your choice.
Why do people feel {feeling}?
How can I deal with {feeling}?
How does {a_thing} work?
How do I get better at {skill}?
How do I start with {hobby}?
How did {topic} change over the last hundred years?
How would you describe {a_thing} to somebody who has never seen one?
How would you describe {feeling} without naming it?
How do you make a simple dish with {food}?
Can you recommend a weekend plan for {place}?
Can you teach me {skill} in five steps?
Can you explain how {topic} and {topic2} are related?
I have a problem: {problem}. What should I do?
Hi, {problem}. Any advice?
{problem}. Give me {n 3-7} tips.
My friend says: "{problem}." What could I answer?
I want to {goal}. Where do I start?
I want to {goal}. Make a plan for {n 2-12} weeks.
Make a checklist for someone who wants to {goal}.
What are realistic expectations for someone who wants to {goal}?
Write a schedule for a day on which I want to {goal}.
Write a short story about {a_animal} and {a_thing}.
Write a short story about {a_job} who finds {a_thing}.
Write a {genre} story set in {place}. The main character is {name}, {a_job}.
Write the first paragraph of a {genre} novel about {idea}.
Write the last paragraph of a {genre} story in which {name} loses {a_thing}.
Write a plot outline for a {genre} film about {topic}.
Write a story in exactly three sentences about {feeling}.
Write a story of about {=50*n} words that contains the words "{thing}", "{animal}" and "{idea}". It has {n 2-6} characters.
Write a bedtime story about a little {animal} who is afraid of {thing}s.
Write a fable with {a_animal} and {a_animal2}. End with a moral about {idea}.
Write a poem about {idea}.
Write a poem about {season} in {place}.
Write a haiku about {a_animal}.
Write a limerick about {a_job} from {country}.
Write a rhyming poem of {n 2-5} stanzas about {topic}.
Write a song about {feeling} with two verses and a chorus.
Write an acrostic poem for the word "{thing}".
Write a love letter from {a_thing} to {a_thing2}.
Write a dialogue between {a_job} and {a_job2} about {topic}.
Write a dialogue between {name} and {name2}, who meet in {place}.
Write a dialogue between {figure} and {figure2} about {idea}.
Write a short scene in which {name} apologizes to {name2}.
Write a conversation between a customer and {a_job} at {company}.
Write an email to my boss asking for {n 2-10} days off because of {occasion}.
Write a {tone} email to {company} about a wrong invoice.
Write a {tone} email that invites colleagues to {occasion}.
Write a {tone} reply to a customer who wants to return {product}.
Write an email to my landlord. The problem: {problem}.
Write a thank-you note to {name} for {product}.
Write an apology from {company} for a delayed order.
Write a cover letter for a position as {a_job}.
Write a short biography of a fictional {job} named {name}.
Write a job advertisement: {company} is looking for {a_job}.
Write a product description for {product}.
Write an advertisement for {product} in the style of {style}.
Write {n 3-6} slogans for {company}.
Write a review of {product} with {n 1-5} stars.
Write a {tone} speech for {occasion}.
Write a toast for {occasion}.
Write a blog post about {topic} for beginners.
Write a blog post with the title "What {hobby} taught me about {idea}".
Write an essay outline on the question whether {topic} does more good than harm.
Write the introduction of an essay on {topic}.
Write a conclusion for an essay about {idea}.
Write a paragraph that argues for {topic}, and one that argues against it.
Write a persuasive paragraph on why everyone should try {hobby}.
Write a news article: {a_animal} was seen in the middle of {place}.
Write a press release: {company} opens in {place}.
Write a tweet about {topic}.
Write a diary entry of {a_job} after a bad day.
Write a description of {place} in {season}.
Write a recipe with {food} for {n 2-8} people.
Write step-by-step instructions for {skill}.
Write a quiz with {n 3-6} multiple-choice questions about {topic}. Give the answers at the end.
Write {n 3-8} true or false questions on {topic}.
Write flash cards about {topic}: a question and an answer each.
Write a glossary of {n 4-8} terms for {topic}.
Write a lesson plan about {topic} for {audience}.
Write a riddle whose answer is "{thing}".
Write a joke about {a_job}.
Write a pun about {food}.
Write a tongue twister about {a_animal}.
Write a metaphor for {idea} and explain it.
Write five sentences about {topic}. Each begins with the same letter.
Write a sentence in which every word begins with the letter of "{thing}".
Describe {a_thing} in the style of {style}.
Describe {topic} in the style of {style}.
Describe a typical day of {a_job} in {country}.
Describe the taste of {food} to someone who has never eaten it.
Describe the sounds and smells of {place}.
Describe what {a_animal} looks like and where it lives.
Describe how the job of {a_job} has changed because of {topic}.
Imagine that you are {a_animal}. Describe your morning.
Imagine that you are {a_thing}. What do you think of people?
Imagine that {figure} lives today. What would they say about {topic}?
Imagine a conversation in {place} a hundred years from now.
You are {a_job}. A customer asks you about {topic}. What do you say?
You are {a_job} with twenty years of experience. Give advice to a beginner.
You are {figure}. Introduce yourself to {audience}.
You are the guide of a museum. Present {a_thing} to visitors.
You are a teacher of {language}. Teach me {n 3-8} words about {food}.
Pretend to be {a_animal} who is looking for work. Write its application.
Act as {a_job} and answer: how important is {idea} in your work?
Act as an interviewer for a job as {a_job}. Ask me {n 3-6} questions.
Act as a travel agent and suggest a trip of {n 2-10} days to {country}.
Act as a debate coach. Give me {n 3-5} arguments in favor of {topic}.
Play the role of a shopkeeper. I want to buy {product}.
Let's play a game: you think of {a_animal} and give me {n 3-5} hints.
Plan {occasion} for {n 5-40} guests with a budget of {=n*20} dollars.
Plan a day in {place} for a family with two children.
Plan a week of dinners. Use {food} at least twice.
Plan the first {n 3-7} lessons of a course on {topic}.
Suggest {n 3-8} names for {company}.
Suggest {n 3-6} gifts for {a_job} who likes {hobby}.
Suggest {n 3-6} books or films about {topic} and say why.
Suggest {n 3-6} activities for {occasion} in {season}.
Suggest a healthy alternative to {food}.
Brainstorm {n 5-10} ideas for a blog about {hobby}.
Brainstorm {n 4-8} uses for an old {thing}.
Brainstorm {n 4-8} ways in which {company} could save money.
Brainstorm {n 3-6} research questions about {topic}.
Brainstorm titles for a {genre} novel about {idea}.
Classify the following words as animals, foods or tools: {animal}, {food}, {thing}, {animal2}, {food2}.
Sort these words alphabetically: {thing}, {idea}, {animal}, {food}, {thing2}, {animal2}.
Which is the odd one out, and why: {animal}, {animal2}, {thing}, {animal3}?
Which of the two is bigger: {a_thing} or {a_animal}?
Which is more important, {idea} or {idea2}? Give your reasons.
Is it better to {goal} or to {goal2} first?
Is {topic} good or bad for society?
Is the following review positive, negative or neutral? "I bought {product} last week and I feel nothing but {feeling}."
Rate this sentence for politeness from 1 to 10 and improve it: "Give me {product} now."
What is the sentiment of this message: "{problem}, and nobody at {company} helps me."
Extract the names, places and things from this sentence: "{name} and {name2} left {place} with {a_thing} and {a_animal}."
Put this information in a table: {name} is {n 20-60} years old and works as {a_job}; {name2} is {m 20-60} and works as {a_job2}.
Put the data in JSON: {name}, {n 20-60}, {job}, lives in {country}, likes {hobby}.
Create a JSON object that describes {a_thing} with name, price, color and a list of features.
Create a JSON array of {n 3-5} fictional customers of {company}.
Create a table of {n 3-6} animals with their habitat, food and lifespan. Include {a_animal}.
Create a table that compares {country} and {country2} by capital, language and climate.
Create a CSV file with {n 3-6} rows about {hobby}.
Create a menu for {company} with {n 3-6} items and prices.
Create a packing list for {n 2-14} days in {place} in {season}.
Create a character for a {genre} story: name, age, appearance, a secret and a wish.
Create a timeline with {n 4-8} dates from the life of {figure}.
Create a mind map, as nested bullet points, on {topic}.
Rewrite this sentence in a {tone} tone: "{problem}."
Rewrite in the passive voice: "{name} gave {name2} {a_thing}."
Rewrite in the past tense: "{name} lives in {place} and works as {a_job}."
Rewrite as a question: "{name} bought {a_thing} for {n 5-90} dollars."
Rewrite this so that it sounds like {style}: "The {animal} is in the kitchen and it ate the {food}."
Correct the grammar: "{name} dont has no {thing} and he go to {place} yesterday."
Correct the mistakes: "me and {name} was eating {food}, it were very good."
Correct the spelling and punctuation: "{name} recieved {a_thing} from they're freind in {place} it was beautifull"
Complete the sentence: "The most important thing about {idea} is"
Complete the story: "When {name} opened the door, there was {a_animal} with {a_thing}."
Complete the analogy and explain it: {animal} is to {animal2} as {food} is to ...
Translate into {language}: "{name} would like to buy {a_thing}."
Translate into {language}: "Good morning, where can I find {food} in this town?"
How do you say "{thing}" in {language}?
How do you say "I like {hobby}" in {language}?
Who was {figure}?
Who was {figure}, and what would the world be without their work?
What was the most important work of {figure}?
When did {figure} live, and what happened in that time?
What is the capital of {country}, and what is it known for?
What is the climate of {country} like?
What food is {country} known for?
What language do people speak in {country}? Teach me a greeting.
Name {n 3-6} neighbors or nearby regions of {country}.
Name {n 3-8} animals that are related to the {animal}.
Where does the {animal} live and what does it eat?
Where does {food} come from?
Why is {topic} important for {country}?
Why should a company such as {company} care about {topic}?
Why do cats, dogs or {animal}s behave differently when they feel {feeling}?
Do you think that {topic} will still matter in fifty years?
Do I need {product} for {hobby}?
Does {food} go well with {food2}? Suggest a dish.
Should I buy {product} or save the money to {goal}?
Should children learn about {topic} in school?
Hello! Who are you, and can you help me with {topic}?
hi, what can you tell me about {hobby}
Good evening. I am {a_job} and I am interested in {topic}.
I am {name}. I feel {feeling} today. Can we talk about it?
I have {food}, {food2} and {n 2-6} eggs. What can I cook?
I am writing a {genre} story about {a_job}. Help me with the next scene.
I have an interview for a job as {a_job}. Which questions should I expect?
I will visit {place} in {season}. What clothes should I pack?
I need a {tone} message to tell {name} that I cannot come to {occasion}.
I have to give a talk on {topic} in {n 5-30} minutes. Make an outline.
Summarize what you know about {topic} in {n 2-5} sentences.
Summarize the life of {figure} in one paragraph.
Summarize the arguments for and against {topic}.
Think step by step: would {a_thing} float in water?
Think of {n 2-4} questions that nobody asks about {topic}, and answer one of them.
Invent a new {thing} and explain how it works.
Invent a holiday that celebrates {idea}. When is it, and what do people do?
Invent a proverb about {a_animal} and explain its meaning.
Design a logo for {company}: describe it in words.
Design an experiment to find out whether {a_animal} can feel {feeling}.
Discuss the role of {idea} in {genre} stories.
Discuss the relation between {idea} and {idea2}.
Give an example of {idea} from everyday life.
Give me a motivational quote about {idea} and explain it.
Give me instructions to draw {a_animal}.
Give me a workout of {n 10-45} minutes for someone who wants to {goal}.
Give three reasons why {name} might prefer {animal}s to {animal2}s.
"""

# What a program does; CODE asks for it in a language.
TASKS = r"""
checks whether a number is prime
returns the n-th Fibonacci number
computes the factorial of a number without recursion
reverses a string without using a library function
checks whether a word is a palindrome
counts the vowels in a string
counts how often every word occurs in a text
finds the largest and the smallest number in a list
removes duplicates from a list and keeps the order
merges two sorted lists into one
sorts a list of numbers with bubble sort
sorts a list with quicksort
sorts a list with merge sort
finds an element in a sorted list with binary search
computes the greatest common divisor of two numbers
converts a decimal number to binary
converts Roman numerals to integers
converts a temperature from Celsius to Fahrenheit
computes the average and the median of a list
computes the sum of the digits of a number
prints a multiplication table
prints a triangle of stars with n rows
solves FizzBuzz for the numbers up to n
transposes a matrix
multiplies two matrices
rotates a list by k places
flattens a nested list
groups words that are anagrams of each other
finds the longest common prefix of some strings
finds the longest word in a sentence
finds two numbers in a list that add up to a target
finds the missing number in a list from 1 to n
finds the second largest number in a list
checks whether brackets are balanced
validates an email address
validates a password with at least eight characters, a digit and a capital letter
encrypts a text with a Caesar cipher
compresses a string by counting repeated characters
generates all permutations of a string
generates all subsets of a set
generates a random password of a given length
generates the first n rows of Pascal's triangle
implements a stack with push, pop and peek
implements a queue with two stacks
implements a linked list with insertion and deletion
reverses a linked list
implements a binary search tree with insert and search
computes the depth of a binary tree
traverses a graph breadth first
finds the shortest path in a grid
implements a cache that forgets what was used least recently
reads a CSV file and prints the sum of a column
reads a file line by line and counts the lines
writes a list of records to a JSON file
downloads a web page and prints its title
parses a date such as 2024-05-17 and prints the weekday
computes the number of days between two dates
computes the area of a circle, a square or a triangle
computes compound interest
computes a person's age from the date of birth
simulates rolling two dice a thousand times
plays a number guessing game with the user
plays tic-tac-toe on the command line
plays rock, paper, scissors
keeps a to-do list in memory with add, remove and show
models a bank account with deposit and withdraw
models a library with books and borrowers
models a shopping cart with prices and a discount
converts a string to title case
converts snake_case to camelCase
splits a list into chunks of a given size
computes the dot product of two vectors
computes the distance between two points
checks whether a year is a leap year
checks whether two strings are anagrams
returns the intersection of two lists
returns the most frequent element of a list
inverts a dictionary
filters the even numbers and squares them
draws a progress bar in the terminal
measures how long a function takes
retries a function three times when it fails
logs every call of a function with its arguments
computes the edit distance of two strings
counts the inversions in a list
evaluates an arithmetic expression such as 2 + 3 * 4
solves a quadratic equation
solves the Tower of Hanoi
finds the maximum sum of a contiguous part of a list
counts the ways to climb n stairs with one or two steps
makes change for an amount with the fewest coins
checks a Sudoku grid for mistakes
computes a moving average
normalizes a list of numbers to the range from 0 to 1
finds all prime factors of a number
lists all primes up to n with the sieve of Eratosthenes
"""

LISTS["task"] = lines(TASKS)

CODE = r"""
Write a {proglang} function that {task}.
Write a {proglang} program that {task}.
Write a function in {proglang} that {task}. Explain how it works.
Write a {proglang} function that {task}, with comments.
In {proglang}, how do I write a function that {task}?
I need {proglang} code that {task}. Include an example of its use.
Write a {proglang} function that {task}, and then write three tests for it.
Write a {proglang} function that {task}. What is its time complexity?
Write pseudocode that {task}, then write it in {proglang}.
Show me two ways to write a {proglang} function that {task}.
Explain step by step the algorithm of a function that {task}.
Write a class in {proglang} that {task}.
can you write {proglang} code that {task}? only the code please
Write a short {proglang} function that {task}. Handle empty input and errors.
"""

CODE_QUESTIONS = r"""
What is the difference between {concept} and {concept2} in {proglang}?
Explain {concept} in {proglang} with a short example.
When should I use {concept} in {proglang}?
What are common mistakes with {concept} in {proglang}?
Give me an example of {concept} in {proglang} and explain every line.
How do I {howto} in {proglang}?
Show me how to {howto} in {proglang}, and explain it briefly.
What is the best way to {howto} in {proglang}?
Write a regular expression that matches {pattern}. Explain its parts.
Write a regular expression for {pattern} and show how to use it in {proglang}.
Which strings does a regular expression for {pattern} have to reject? Give three examples.
Write a SQL query that {query}. The table is {table}.
I have a table {table}. Write a query that {query}.
Given the table {table}, write SQL that {query}, and explain it.
Write a CREATE TABLE statement for {table} and insert three rows.
Write a shell command that {shell}.
How do I write a Bash script that {shell}?
What does this command do, and when would I use it: {command}
Write a Dockerfile for a {proglang} application that listens on port {n 3000-9000}.
Write an HTML page for {company} with a heading, a paragraph and a list.
Write CSS for a {style_of_box}.
Write a JSON schema for an object that describes {a_thing}.
Write a Makefile for a small {proglang} project with the targets build, test and clean.
Write a README for a {proglang} library that {task}.
Write a commit message: the program {task} now, and a bug in {concept} is fixed.
Design the classes of a program for {company}. Only names and responsibilities.
"""

MATH = r"""
{name} has {a 12-90} {item}. {name2} gives {name} {b 5-40} more, and then {name} loses {c 2-9}. How many {item} does {name} have now?
{name} buys {a 2-9} {item} for ${p 2-12} each and {b 2-6} {item2} for ${q 3-15} each. How much does {name} pay in total?
{name} buys {a 2-8} {item} at ${p 2-9} each and pays with a $100 bill. How much change does {name} get?
{name} shares {=a*b} {item} equally among {a 3-9} friends. Each friend gives {c 1-3} of them away. How many {item} does each friend have left?{:b 4-15}
A box holds {a 6-24} {item}. How many boxes does {name} need for {=a*b} {item}?{:b 3-20}
A {group} has {=2*a} members. Half of them are children, and {b 2-5} of the children leave. How many members are left?{:a 8-40}
{name} earns ${p 8-30} an hour by {work}. Last week {name} worked {a 2-9} hours a day for {b 3-6} days. How much money did {name} earn?
{name} saves ${a 5-40} every week. How many weeks does it take to save ${=a*b} for {product}?{:b 4-20}
{name} reads {a 10-45} pages a day. A book has {=a*b} pages, and {name} has read it for {c 1-3} days. How many more days does {name} need?{:b 4-15}
{name} runs {a 2-9} kilometers on Monday, twice as far on Tuesday and {b 1-6} kilometers more than on Monday on Wednesday. How far does {name} run in total?
A train travels {a 40-120} kilometers an hour for {b 2-6} hours, then {c 30-90} kilometers an hour for {d 1-4} hours. How far does it travel?
A car uses {a 5-9} liters of fuel for 100 kilometers. What does the fuel for {=100*b} kilometers cost at ${c 1-3} a liter?{:b 2-9}
A shirt costs ${=20*a}. It is on sale with {=5*b} percent off. What is the new price?{:a 1-5}{:b 1-8}
A rectangle is {a 3-30} meters long and {b 2-20} meters wide. What are its area and its perimeter?
A garden of {a 5-30} by {b 4-20} meters gets a fence. Fence costs ${c 3-15} a meter. How much does the fence cost?
The sum of two numbers is {=a+b+a}. One of them is {b 3-40} more than the other. What are the two numbers?{:a 5-60}
{name} is {a 3-15} years older than {name2}. Together they are {=2*b+a} years old. How old is {name2}?{:b 6-30}
In {a 2-12} years {name} will be {=b+a} years old. How old was {name} {c 1-4} years ago?{:b 10-50}
A recipe for {a 2-6} people needs {=a*b} grams of flour. How much flour is needed for {c 7-20} people?{:b 40-150}
A class has {a 10-18} girls and {b 9-17} boys. Each child brings {c 2-5} {item}. How many {item} do they bring?
{name} bakes {a 3-9} trays of {b 6-24} cookies. {c 5-17} cookies burn, and the others are sold for ${d 1-3} each. How much money does {name} make?
A tank holds {=a*b} liters. A pump fills in {a 5-40} liters a minute. How long does it take to fill the tank? And if a leak loses {c 1-4} liters a minute?{:b 5-30}
{name} has three times as many {item} as {name2}. Together they have {=4*a} {item}. How many does each have?{:a 4-40}
A farmer has {a 5-40} cows and {b 10-80} chickens. How many legs do the animals have together?
A bus starts with {a 20-45} passengers. At the first stop {b 3-15} get off and {c 2-12} get on; at the second stop {d 1-9} get on. How many passengers are on the bus?
{name} buys a phone for ${=100*a} and pays ${b 10-30} a month for {c 6-24} months in addition. What is the total cost?{:a 2-9}
A store sells {a 20-90} {item} on Monday, {b 20-90} on Tuesday and as many on Wednesday as on both days together. How many does it sell in the three days?
A worker paints a wall in {a 2-9} hours, another in {=2*a} hours. How long do they need together?
{name} scores {a 50-100}, {b 50-100}, {c 50-100} and {d 50-100} points in four tests. What is the average?
{name} needs an average of {a 70-90} in three tests. The first two scores are {b 60-95} and {c 60-95}. Which score is needed in the third?
A bag has {a 2-9} red, {b 2-9} blue and {c 2-9} green balls. What is the probability of drawing a red ball?
Two dice are rolled. What is the probability that the sum is {a 2-12}?
How many ways are there to choose {a 2-4} people from a group of {b 5-12}?
How many different ways can {a 3-7} people stand in a row?
{=10*a} percent of the {b 20-90}0 people in a {group} like {hobby}. How many people is that?{:a 1-9}
The price of a cake rose from ${a 5-20} to ${=a+b}. By what percentage did it rise?{:b 1-4}
What is {a 12-99} times {b 12-99}? Show your work.
What is {a 100-999} plus {b 100-999}, minus {c 50-500}?
What is {=a*b} divided by {a 3-25}?{:b 3-60}
Compute {a 2-20} + {b 2-20} * {c 2-12} - {d 1-30}. Explain the order of operations.
Compute ({a 2-30} + {b 2-30}) * {c 2-9} and then subtract {d 5-60}.
What is {a 5-95} percent of {b 20-900}?
What is {a 1-9}/{b 2-12} + {c 1-9}/{d 2-12}? Simplify the result.
Write {a 1-19}/{b 20-40} as a decimal number with three digits.
Is {a 101-999} a prime number? Explain how you know.
Find the prime factors of {a 24-990}.
Find the greatest common divisor of {=a*c} and {=b*c}.{:c 2-15}{:a 2-12}{:b 2-12}
Find the least common multiple of {a 4-30} and {b 4-30}.
Solve for x: {a 2-12}x + {b 1-40} = {c 41-120}
Solve for x: {a 2-9}(x - {b 1-12}) = {c 10-90}
Solve the system: x + y = {a 10-60}, x - y = {b 1-9}
Solve the quadratic equation x^2 - {=a+b}x + {=a*b} = 0.{:a 1-9}{:b 1-12}
Expand and simplify: (x + {a 1-12})(x - {b 1-12})
Find the derivative of f(x) = {a 2-9}x^{b 2-6} + {c 2-20}x - {d 1-30}.
Find the integral of {a 2-9}x^{b 2-5} + {c 1-20}.
If f(x) = {a 2-9}x^2 - {b 1-12}x + {c 1-20}, what is f({d 2-8})?
What are the slope and the intercept of the line through (0, {a 1-12}) and ({b 1-9}, {c 1-30})?
What is the next number in the sequence: {a 1-20}, {=a+b}, {=a+2*b}, {=a+3*b}?{:b 2-15}
What is the sum of the numbers from {a 1-10} to {b 20-200}?
Find the {c 5-20}th term of the arithmetic sequence that starts with {a 1-20} and grows by {b 2-12}.
A triangle has sides of {=3*a}, {=4*a} and {=5*a} centimeters. Is it a right triangle? What is its area?{:a 1-12}
A circle has a radius of {a 2-25} centimeters. What are its area and circumference?
A cube has edges of {a 2-15} centimeters. What are its volume and surface?
A cylinder is {a 5-30} centimeters high and has a radius of {b 2-12} centimeters. What is its volume?
Two angles of a triangle are {a 25-80} and {b 25-80} degrees. How large is the third?
Convert {a 2-250} {unit}.
Convert {a 2-90} {unit} and explain the conversion.
Convert {a 10-255} to binary.
Convert the binary number {=bin(a)[2:]} to decimal.{:a 20-120}
{name} leaves home at {a 6-11}:15 and travels for {b 1-5} hours and {c 16-44} minutes. When does {name} arrive?
A film starts at {a 5-9}:40 pm and lasts {b 80-170} minutes. When does it end?
${=100*a} is invested at {b 2-9} percent a year. What is it worth after {c 2-5} years with compound interest?{:a 5-50}
{name} drives to {place} at {a 50-70} kilometers an hour and back at {b 71-110}. The distance is {=10*c} kilometers. How long is the whole trip?{:c 10-40}
{name} has {a 3-12} quarters, {b 4-20} dimes and {c 2-15} nickels. How much money is that?
There are {=2*a+b} {item} in two baskets. One basket has {b 2-20} more than the other. How many {item} are in each?{:a 10-50}
Round {a 100-999}.{b 100-999} to the nearest tenth, the nearest unit and the nearest ten.
Put these numbers in order from small to large: {a 1-99}, -{b 1-99}, {c 1-9}.{d 10-99}, {e 1-9}/{f 2-9}.
Estimate {a 198-989} times {b 19-98} without a calculator, then compute it exactly.
"""

# A passage stands where {text} is.
PASSAGES = {
    "summary": r"""
Summarize: {text}
Summarize the following text.\n\n{text}
Summarize the following text in one sentence.\n\n{text}
Summarize this in three bullet points:\n\n{text}
Summarize the passage below for {audience}.\n\n{text}
{text}\n\nTL;DR
{text}\n\nWrite a short summary of the text above.
What are the key points of this text?\n\n"{text}"
Give the following paragraph a title and a one-line summary.\n\n{text}
Shorten this text to half its length:\n\n{text}
List the most important terms in this text and define each briefly.\n\n{text}
""",
    "prose": r"""
Continue this text:\n\n{text}
Continue the text in the same style.\n\n{text}
Continue this text: {text}
Write the next paragraph.\n\n{text}
Rewrite the following text in simpler words.\n\n{text}
Rewrite this text in a {tone} tone:\n\n{text}
Rewrite this in the style of {style}.\n\n{text}
Paraphrase the following paragraph.\n\n{text}
Improve the style of this text and correct mistakes:\n\n{text}
Turn this text into a dialogue between two people.\n\n{text}
Turn the text into a list of instructions, if that is possible.\n\n{text}
""",
    "question": r"""
Read the text and write three questions about it, with answers.\n\n{text}
{text}\n\nWhat is the main idea of this passage?
{text}\n\nExplain this to {audience}.
Explain the following text in your own words:\n\n{text}
What does this mean?\n\n"{text}"
Write a multiple-choice question on this passage, with four options.\n\n{text}
Why is what this text says important?\n\n{text}
Give an example that illustrates this:\n\n{text}
Extract all names and technical terms from the text as a JSON list.\n\n{text}
Is the following text an instruction, an explanation or an opinion? Give reasons.\n\n{text}
Based on the text, write two statements that are true and one that is false.\n\n{text}
""",
}

PLAY = r"""
Continue this text:\n\n{text}
Continue this scene:\n\n{text}
Rewrite this scene in modern English.\n\n{text}
Explain in simple words what happens here:\n\n{text}
Who speaks in this scene, and what do they want?\n\n{text}
What is the mood of these lines?\n\n{text}
Summarize the scene in two sentences.\n\n{text}
Write the next speech.\n\n{text}
Write a short story in prose from this scene:\n\n{text}
"""

SENTENCES = {
    "translation": r"""
Translate to {language}: {text}
Translate the following sentence into {language}: "{text}"
How would you say this in {language}? {text}
Translate English to {language}: {text}
What is the {language} translation of "{text}"?
""",
    "chat": r"""
Write a short story that begins with this sentence: "{text}"
Rewrite this sentence in {n 2-4} different ways: "{text}"
Explain the meaning of this sentence: "{text}"
Which part of speech is each word in "{text}"?
Make this sentence more vivid: "{text}"
What happened before? "{text}"
Who could have said this, and to whom? "{text}"
Turn this into a question and answer it: "{text}"
Is there a mistake in this sentence? "{text}"
Continue: "{text}"
Change this sentence to the future tense: "{text}"
Write a dialogue in which someone says: "{text}"
Use a {tone} tone to say the same thing: "{text}"
""",
}

FUNCTIONS = {
    "described": r"""
Write a Python function `{name}({arguments})`. Its docstring is:\n\n{docstring}
Write a Python function named {name} that does the following: {docstring}
Complete this function:\n```python\n{head}\n```
Complete this function:\n\n{head}
Implement the following function and explain your solution.\n\n```python\n{head}\n```
Finish the code:\n```python\n{head}\n```
Write a solution for the following function.\n```python\n{head}\n```
Write tests for this function with unittest.\n```python\n{head}\n```
""",
    "read": r"""
What does this code do?\n\n```python\n{code}\n```
Explain this function step by step.\n\n```python\n{code}\n```
Add a docstring to this function:\n```python\n{code}\n```
Add comments to this code.\n\n```python\n{code}\n```
Add type hints to the following function:\n```python\n{code}\n```
Write a unit test for this function.\n\n```python\n{code}\n```
Rewrite this function so that it is easier to read:\n\n```python\n{code}\n```
Translate this Python function to {proglang}.\n\n```python\n{code}\n```
How could this code be made faster?\n```python\n{code}\n```
Review this code. What would you improve?\n\n```python\n{code}\n```
{code}\n\nSuggest a better name for this function and explain why.
Which inputs could make this function fail?\n```python\n{code}\n```
""",
    "broken": r"""
Find the bug in this function:\n\n```python\n{code}\n```
This function does not work as it should. What is wrong?\n```python\n{code}\n```
Fix this code:\n\n```python\n{code}\n```
My tests fail with this function. Can you correct it?\n\n```python\n{code}\n```
""",
    "next": r"""
Now add error handling to it.
Explain how it works.
Can you write a test for it?
Can you make it shorter?
What does the first line do?
Now translate it to {proglang}.
Give me an example of how to call it.
What is its time complexity?
""",
}

FOLLOW_UPS = {
    "math": r"""
Can you explain the first step again?
Check the result in another way.
Now write a similar problem and solve it.
How would the answer change if the first number were doubled?
Explain this to {audience}.
Write the solution as a single equation.
""",
    "chat": r"""
Use it in three sentences.
Can you explain that in simpler words?
Give me an example.
What is the opposite?
Write a short poem about it.
Thanks! How do you say it in {language}?
Tell me more.
Write a quiz question about it.
Explain it to {audience}.
Why is it important?
""",
}

# The first turns of dialogues at a counter, with what a customer answers.
SERVICE = r"""
User: I'd like to book a table for {n 2-8} at {h 5-9} pm, please.\nAssistant: Of course. Under which name?\nUser: {name}. And one of us does not eat {food}.
User: Hello, I want to fly to {country} next week.\nAssistant: Sure. Would you like a window seat or an aisle seat?\nUser: Window, please. How much is it?
User: Can I order {a_thing}?\nAssistant: Yes. Which color would you like?\nUser: Blue, and please deliver it to my office.
User: Hi, I bought {product} and it arrived broken.\nAssistant: I am sorry to hear that. Do you have the order number?\nUser: Yes, it is {n 10000-99999}.
User: I need an appointment with {a_job}.\nAssistant: We have Tuesday at {h 9-11} or Thursday at {k 1-5}. Which one suits you?\nUser: Thursday. What do I have to bring?
User: One {food} and a coffee, please.\nAssistant: For here or to go?\nUser: To go. Can I pay by card?
User: What time does the museum close?\nAssistant: It closes at {h 5-8} pm today.\nUser: And is there something about {topic}?
User: I have lost my bag on the train to {place}.\nAssistant: What does the bag look like?\nUser: It is brown, and there is {a_thing} in it.
User: I would like to cancel my membership.\nAssistant: May I ask why you are leaving?\nUser: {problem}.
User: Which film can you recommend?\nAssistant: Do you prefer comedies or something serious?\nUser: Something like {genre}, please.
User: Hello, could you help me choose a present for {name}?\nAssistant: Gladly! What does {name} like?\nUser: {hobby}. My budget is {n 10-150} dollars.
User: My {thing} does not work any more.\nAssistant: What exactly happens when you use it?\nUser: Nothing at all. It was fine yesterday.
User: I am looking for a flat in {place}.\nAssistant: How many rooms do you need?\nUser: {n 2-5}, and a kitchen. What does that cost?
User: Do you sell {food}?\nAssistant: Yes, we do. How much would you like?\nUser: {n 2-9} pounds, please. Anything else you would recommend with it?
User: I'd like to rent a car for {n 2-14} days.\nAssistant: What size of car do you need?\nUser: There are {m 2-6} of us, and we want to see {place}.
User: How is the weather in {place} in {season}?\nAssistant: It depends on the week. When exactly are you going?\nUser: In the second week. What should I wear?
"""
